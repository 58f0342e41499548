package router

import (
	"fmt"
	"strings"
)

// ColumnError says that a rule needs a column that this version of the table lacks.
type ColumnError struct {
	// Table is `schema.table`.
	Table string
	// Rule is the index in [Options.Rules], Field the key in it.
	Rule  int
	Field string
	// Column is the missing one, Columns are those that the table has.
	Column  string
	Columns []string
}

// Error names what is missing and what is there.
func (e *ColumnError) Error() string {
	return fmt.Sprintf("table %s has no column %s, which %s.%s needs; its columns are %s",
		e.Table, quoteIdentifier(e.Column), ruleName(e.Rule), e.Field, strings.Join(e.Columns, ", "))
}

// NamesError says that the binlog describes a table without the names of its columns.
type NamesError struct {
	// Table is `schema.table`.
	Table string
	// SQL is the statement that makes the server write names from then on.
	SQL string
}

// Error carries the remedy.
func (e *NamesError) Error() string {
	return fmt.Sprintf("the binlog gives no column names for table %s; the server writes them after: %s", e.Table, e.SQL)
}

// KindError says that a column's type does not suit what the rule does with it.
type KindError struct {
	// Table is `schema.table`.
	Table string
	// Rule is the index in [Options.Rules], Field the key in it.
	Rule  int
	Field string
	// Column is the unsuitable one.
	Column string
	// Err says what does not suit.
	Err error
}

// Error names column and cause.
func (e *KindError) Error() string {
	return fmt.Sprintf("table %s column %s cannot serve %s.%s: %v", e.Table, quoteIdentifier(e.Column), ruleName(e.Rule), e.Field, e.Err)
}

// Unwrap gives the cause.
func (e *KindError) Unwrap() error { return e.Err }
