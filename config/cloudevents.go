package config

import (
	"fmt"
	"net/url"
)

// CloudEvents are the options of the preset cloudevents. All but Mode,
// DataContentType and the names of extensions are templates over columns.
type CloudEvents struct {
	// Mode is binary, with attributes in headers, or structured, with all of
	// the event in the value.
	Mode string `yaml:"mode" oneof:"binary structured"`
	ID   string `yaml:"id"`
	// Source is the relay's name and the table where it is not given; empty then
	// for a pattern, with the relay's name in SourcePrefix.
	Source string `yaml:"source"`
	Type   string `yaml:"type"`
	// Subject and DataSchema are left out where they are empty.
	Subject         string `yaml:"subject"`
	DataSchema      string `yaml:"data_schema"`
	DataContentType string `yaml:"data_content_type"`
	// Extensions are further attributes.
	Extensions []Header `yaml:"extensions"`
}

// defaultCloudEvents is the section before its keys are read.
func defaultCloudEvents() CloudEvents {
	return CloudEvents{Mode: "binary", ID: "{id}", Type: "{event_type}", Subject: "{aggregate_id}", DataContentType: "application/json"}
}

// eventSource is a URI reference that no other table and no other relay has.
func eventSource(relay string, table TableName) string {
	return "/" + url.PathEscape(relay) + "/" + url.PathEscape(table.String())
}

// cloudEvents checks the section of a rule.
func (c *collector) cloudEvents(t *Table, path string) {
	if _, given := c.origins[path+".cloudevents"]; given && t.Preset != PresetCloudEvents {
		c.check(false, path+".cloudevents", "set preset: cloudevents, or drop it", "has no effect with preset %s", t.Preset)
	}
	if t.Preset != PresetCloudEvents {
		return
	}
	for _, one := range []struct{ key, value string }{{"id", t.CloudEvents.ID}, {"type", t.CloudEvents.Type}} {
		c.check(one.value != "", path+".cloudevents."+one.key, "name a column, or drop it to use the preset's", "is empty, and every event needs one")
	}
	for i, e := range t.CloudEvents.Extensions {
		if e.Name == "" {
			c.missing(fmt.Sprintf("%s.cloudevents.extensions[%d].name", path, i), "the attribute's name")
		}
	}
}
