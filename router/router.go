package router

import (
	"errors"

	"outbox-relay/binlog/value"
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
	rules    []rule
	sources  []Rule                    // the configured ones, of which those with a pattern are compiled again for each table
	byName   map[TableName]*tableRules // of tables that were bound
	foldCase bool
	topics   *interner
	reserved map[string]string
	names    *interner // header names from spread columns
	values   value.Printer
}

// tableRules are the rules of one table, in their order.
type tableRules struct {
	rules  []rule
	ignore bool   // rows that no rule matches are no fault
	policy string // for rows that no rule matches: what all rules agree on
}

const (
	defaultMaxTopics = 4096
	maxHeaderNames   = 1024
	maxKeptName      = 256 // bytes; longer header names are not worth keeping
	maxKeptTables    = 2000
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
		sources:  o.Rules,
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
		faults = append(faults, r.clashes(compiled)...)
		r.rules = append(r.rules, compiled)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return r, nil
}

// of gives the rules of a table, nil where none names it. The server's own way to tell names apart counts, and foldCase.
func (r *Router) of(name TableName, fold bool) *tableRules {
	fold = fold || r.foldCase
	key := name.key(fold)
	if t, known := r.byName[key]; known {
		return t
	}
	t := &tableRules{}
	for _, one := range r.rules {
		if !one.table.Covers(name, fold) {
			continue
		}
		if one.event != nil && one.table.IsPattern() { // an event says which table it comes from
			in := r.sources[one.index]
			in.Table = name.String()
			one, _ = compileRule(one.index, in) // without faults, as it was with the pattern
		}
		t.rules = append(t.rules, one)
	}
	if len(t.rules) == 0 {
		return nil
	}
	t.settle()
	if len(r.byName) >= maxKeptTables {
		clear(r.byName)
	}
	r.byName[key] = t
	return t
}

// clashes are the faults that a rule has beside the earlier rules of its table.
func (r *Router) clashes(next rule) Faults {
	var faults Faults
	var same []rule
	for _, e := range r.rules {
		if e.table.Covers(next.table, r.foldCase) {
			same = append(same, e)
		}
	}
	for _, e := range same {
		if e.table.key(r.foldCase) == next.table.key(r.foldCase) && e.otherwise != "" && next.otherwise != "" && e.otherwise != next.otherwise {
			faults = append(faults, Fault{next.index, "otherwise", "differs from that of " + ruleName(e.index) + ", which names the same table"})
			break
		}
	}
	if by, yes := unreachable(next, same); yes {
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
	poison := false // of rules that name the table in different ways, one may ignore such rows and another not
	for _, r := range t.rules {
		t.ignore = t.ignore || r.otherwise == "ignore"
		poison = poison || r.otherwise == "poison"
		if r.policy != t.policy {
			t.policy = ""
		}
	}
	t.ignore = t.ignore && !poison
}

// Tables lists the tables and patterns that the rules name, each once, in the order of the rules.
func (r *Router) Tables() []TableName {
	var names []TableName
	seen := map[TableName]bool{}
	for _, one := range r.rules {
		if key := one.table.key(r.foldCase); !seen[key] {
			seen[key] = true
			names = append(names, one.table)
		}
	}
	return names
}
