package cases_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outbox-relay/binlog"
	"outbox-relay/router"
)

// failureCase is a line of the table. It is brought about by values, by do or by steps.
type failureCase struct {
	id   string
	what string // in a sentence
	only string // the version that knows it; empty means all
	// alone is set where others on the same server would be disturbed: prepared XA branches, global settings, restarts, purges.
	alone bool

	// values is a table of values, written row by row and compared with what SELECT prints and with the literal expectation.
	values *values

	// do is SQL on one connection, with {db} for the case's database and {db2} for one that nobody watches. The relay begins before it and reads
	// it afterwards, as one does that was stopped meanwhile.
	setup   []string      // instead of the usual table o, before the relay's first position
	do      []string      //
	rules   []router.Rule // instead of the usual one for o
	options func(*binlog.Options)
	want    []string // records: "key value", then " header=value" for each header of the rules
	// stop is set where the relay has to stand still behind the records of want: the reason, and words of its sentence.
	stop    string
	words   []string
	ignored map[string]float64 // ignored_changes_total of table o by kind

	steps func(s *site)
}

// values is what a case writes into a table, and what has to come.
type values struct {
	columns []string // DDL of the columns behind id, each beginning with its name
	mode    string   // sql_mode of the writer; "-" keeps the server's own
	session []string // statements before the rows
	rows    []string // SQL of the rows' values
	want    [][]string
}

var sections = [][]failureCase{valueCases, jsonCases, schemaCases, shapeCases, transactionCases, sourceCases, writeCases, nameCases, changeCases, columnCases}

func allCases() []failureCase { return slices.Concat(sections...) }

func TestCase(t *testing.T) {
	t.Parallel()
	for _, c := range allCases() {
		t.Run(c.id, func(t *testing.T) {
			t.Parallel()
			for _, v := range versions {
				if !strings.HasPrefix(v.number, c.only) {
					continue
				}
				t.Run(v.number, func(t *testing.T) {
					t.Parallel()
					c.run(newSite(t, v, c.alone))
				})
			}
		})
	}
}

func (c *failureCase) run(s *site) {
	s.Helper()
	switch {
	case c.steps != nil:
		c.steps(s)
	case c.values != nil:
		c.values.run(s)
	default:
		c.runSQL(s)
	}
}

func (c *failureCase) runSQL(s *site) {
	s.Helper()
	if c.setup == nil {
		s.exec(outboxTable)
	} else {
		s.exec(c.setup...)
	}
	s.begin(c.rules, c.options)
	s.exec(c.do...)
	if c.stop != "" {
		s.wantStop(c.stop, c.words...)
		s.equal(s.got, c.want)
	} else {
		s.equal(s.records(), c.want)
	}
	for kind, want := range c.ignored {
		if got := s.ignored("o", kind); got != want {
			s.Errorf("%v ignored changes of kind %s were counted, want %v", got, kind, want)
		}
	}
}

func (v *values) run(s *site) {
	s.Helper()
	names := make([]string, len(v.columns))
	for i, c := range v.columns {
		names[i], _, _ = strings.Cut(c, " ")
	}
	s.exec("CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, " + strings.Join(v.columns, ", ") + ")")
	s.begin([]router.Rule{columnsRule(s.db, "o", names...)}, nil)
	if v.mode != "-" {
		s.exec("SET sql_mode = '" + v.mode + "'")
	}
	s.exec(v.session...)
	for _, row := range v.rows {
		s.exec("INSERT INTO o (" + strings.Join(names, ", ") + ") VALUES (" + row + ")")
	}
	got := s.cells()
	if diff := cmp.Diff(v.want, got); diff != "" {
		s.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(s.selected("o", names...), got); diff != "" {
		s.Errorf("-SELECT +got:\n%s", diff)
	}
}

// TestThePageListsTheTable sees that docs/cases.md and the table name the same cases.
func TestThePageListsTheTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z]+[0-9]+) \|`).FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, m[1])
	}
	var ids []string
	for _, c := range allCases() {
		ids = append(ids, c.id)
		if c.what == "" || c.values == nil && c.do == nil && c.steps == nil {
			t.Errorf("case %s says or does nothing", c.id)
		}
	}
	slices.Sort(listed)
	slices.Sort(ids)
	if diff := cmp.Diff(ids, listed); diff != "" {
		t.Errorf("-table +page:\n%s", diff)
	}
	if double := len(ids) - len(slices.Compact(slices.Clone(ids))); double > 0 {
		t.Errorf("%d ids are used twice", double)
	}
}

// columnsRule publishes each column as a header.
func columnsRule(db, table string, columns ...string) router.Rule {
	r := router.Rule{Table: db + "." + table, Preset: "none", Topic: "t", Key: "{id}", Value: "v"}
	for _, c := range columns {
		r.Headers = append(r.Headers, router.HeaderRule{Name: c, Value: "{" + c + "}"})
	}
	return r
}

const outboxTable = "CREATE TABLE o (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(64), payload JSON)"

// outboxRule is the usual rule of a table like o.
func outboxRule(db, table string) router.Rule {
	return router.Rule{Table: fmt.Sprintf("%s.%s", db, table), Preset: "none", Topic: "t", Key: "{aggregate_id}", Value: "{payload}"}
}
