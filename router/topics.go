package router

import (
	"regexp"
	"strings"
)

// TopicUse is the topic of one rule.
type TopicUse struct {
	// Rule is the index in [Options.Rules].
	Rule  int
	Table TableName
	// Topic is the name where the rule has a fixed one, else empty.
	Topic string
	// Template is the rule's topic as written, or the preset's.
	Template string
	matches  *regexp.Regexp
}

// Matches tells whether the rule can give a topic of this name.
func (u TopicUse) Matches(name string) bool { return u.matches.MatchString(name) }

// Topics lists the topics of the rules, in their order. Names that come from columns are not known before the rows are.
func (r *Router) Topics() []TopicUse {
	var out []TopicUse
	for _, rule := range r.rules {
		use := TopicUse{Rule: rule.index, Table: rule.table, Topic: rule.fixed, Template: rule.topic.String(), matches: rule.topic.pattern()}
		if rule.debezium != nil {
			use.Template, use.matches = rule.debezium.Topic(), regexp.MustCompile(rule.debezium.TopicPattern())
		}
		out = append(out, use)
	}
	return out
}

// pattern matches what the template can give, a column being at least one character.
func (t template) pattern() *regexp.Regexp {
	var b strings.Builder
	b.WriteByte('^')
	for _, p := range t.parts {
		if p.column == "" {
			b.WriteString(regexp.QuoteMeta(p.literal))
		} else {
			b.WriteString(".+")
		}
	}
	b.WriteByte('$')
	return regexp.MustCompile(b.String())
}
