package router

import (
	"errors"
)

// Options configure a [Router].
type Options struct {
	// Rules in the order of the configuration: among the rules of one table the first that matches a row counts.
	Rules []Rule
	// FoldCase compares names of schemas and tables without regard to case. Set it where the server's lower_case_table_names is not 0.
	FoldCase bool
	// Reserved are topics that no record may go to, since the relay keeps something else there, each with what that is, such as "dead letters".
	Reserved map[string]string
	// MaxTopics bounds how many topic names are kept as strings; beyond it names cost an allocation. 0 means 4096.
	MaxTopics int
}

// Router makes records of rows. It is for one goroutine, together with its Bindings.
type Router struct {
	tables   []*tableRules
	byName   map[TableName]*tableRules
	foldCase bool
	topics   *interner
	reserved map[string]string
	names    *interner // header names from spread columns
}

// tableRules are the rules of one table.
type tableRules struct {
	name   TableName
	rules  []rule
	ignore bool   // rows that no rule matches are no fault
	policy string // for rows that no rule matches: what all rules agree on
}

const (
	defaultMaxTopics = 4096
	maxHeaderNames   = 1024
	maxKeptName      = 256 // bytes; longer header names are not worth keeping
)

// ErrNotWatched is the error of [Router.Bind] for a table that no rule names.
var ErrNotWatched = errors.New("no rule names this table")

// New compiles the rules. Its error is a [Faults] with every mistake in them. It reads the zone database of the machine when a rule
// names a time zone, and does no other I/O.
func New(o Options) (*Router, error) {
	if o.MaxTopics <= 0 {
		o.MaxTopics = defaultMaxTopics
	}
	r := &Router{
		byName:   make(map[TableName]*tableRules),
		foldCase: o.FoldCase,
		topics:   newInterner(o.MaxTopics),
		reserved: o.Reserved,
		names:    newInterner(maxHeaderNames),
	}
	var faults Faults
	if len(o.Rules) == 0 {
		faults = append(faults, Fault{Field: "table", Text: "missing: at least one table is needed"})
	}
	for i, in := range o.Rules {
		compiled, found := compileRule(i, in)
		faults = append(faults, found...)
		if what, taken := o.Reserved[compiled.fixed]; taken {
			faults = append(faults, Fault{i, "topic", reservedText(compiled.fixed, what)})
		}
		if compiled.table == (TableName{}) {
			continue
		}
		t := r.add(compiled.table)
		faults = append(faults, t.clashes(compiled)...)
		t.rules = append(t.rules, compiled)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	for _, t := range r.tables {
		t.settle()
	}
	return r, nil
}

func (r *Router) add(name TableName) *tableRules {
	key := name.key(r.foldCase)
	t := r.byName[key]
	if t == nil {
		t = &tableRules{name: name}
		r.byName[key] = t
		r.tables = append(r.tables, t)
	}
	return t
}

// clashes are the faults that a rule has beside the earlier rules of its table.
func (t *tableRules) clashes(next rule) Faults {
	var faults Faults
	for _, e := range t.rules {
		if e.otherwise != "" && next.otherwise != "" && e.otherwise != next.otherwise {
			faults = append(faults, Fault{next.index, "otherwise", "differs from that of " + ruleName(e.index) + ", which names the same table"})
			break
		}
	}
	if by, yes := unreachable(next, t.rules); yes {
		field := "table"
		if len(next.when) > 0 {
			field = "when"
		}
		faults = append(faults, Fault{next.index, field, "the rule is never used: " + ruleName(by) + " takes its rows"})
	}
	return faults
}

// settle decides what holds for the table as a whole.
func (t *tableRules) settle() {
	t.policy = t.rules[0].policy
	for _, r := range t.rules {
		t.ignore = t.ignore || r.otherwise == "ignore"
		if r.policy != t.policy {
			t.policy = ""
		}
	}
}

// Tables lists the tables that the rules name, each once, in the order of the rules.
func (r *Router) Tables() []TableName {
	names := make([]TableName, len(r.tables))
	for i, t := range r.tables {
		names[i] = t.name
	}
	return names
}
