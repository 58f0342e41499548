package router

import "outbox-relay/binlog/event"

// recentTopics remembers what a topic template with one column gave, by that column's bytes in the row: equal bytes of a column are equal text. Each topic has one
// place, so a few that take turns are all remembered.
type recentTopics struct {
	column int // of the template; negative where it has several
	places [8]recentTopic
}

type recentTopic struct {
	raw   []byte
	topic string // empty: nothing is remembered
}

// maxRecent is the longest column that is remembered, in bytes: a topic has 249 characters at most.
const maxRecent = 4 * maxTopic

// recentOf tells what can be remembered of a template.
func recentOf(t *boundTemplate) recentTopics {
	r := recentTopics{column: -1}
	for i := range t.parts {
		switch c := t.parts[i].column; {
		case c < 0:
		case r.column >= 0:
			return recentTopics{column: -1}
		default:
			r.column = c
		}
	}
	return r
}

// place gives the place for a row's topic, nil where none can be remembered.
func (r *recentTopics) place(cells []event.Cell) *recentTopic {
	if r.column < 0 {
		return nil
	}
	c := &cells[r.column]
	if n := len(c.Raw); c.State == event.CellValue && n > 0 && n <= maxRecent {
		return &r.places[(n+7*int(c.Raw[n-1]))%len(r.places)]
	}
	return nil
}
