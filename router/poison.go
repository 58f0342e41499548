package router

import "fmt"

// Reason says in one word why a row cannot become a record. The set is fixed, so a metric may be labelled by it.
type Reason string

// The reasons of a [Poison].
const (
	// ReasonUnmatched: no rule of the table matches and the table's rows must not be ignored.
	ReasonUnmatched Reason = "unmatched"
	// ReasonMissingColumn: the row image lacks a column that the rule needs (binlog_row_image is not FULL).
	ReasonMissingColumn Reason = "missing_column"
	// ReasonRowTooLarge: the row is larger than limits.row, so that not all of its values were kept.
	ReasonRowTooLarge Reason = "row_too_large"
	// ReasonUndecodable: the bytes of a column cannot be read as its type.
	ReasonUndecodable Reason = "undecodable"
	// ReasonNullTopic: the topic column is NULL.
	ReasonNullTopic Reason = "null_topic"
	// ReasonNullKey: the key column is NULL and the rule does not allow null keys.
	ReasonNullKey Reason = "null_key"
	// ReasonNullValue: the value column is NULL and the rule does not make tombstones.
	ReasonNullValue Reason = "null_value"
	// ReasonNullInTemplate: a column beside other text is NULL, and there is no text for that.
	ReasonNullInTemplate Reason = "null_in_template"
	// ReasonInvalidTopic: the name is not one that a broker accepts.
	ReasonInvalidTopic Reason = "invalid_topic"
	// ReasonInvalidFilter: the bytes of a column do not suit the filter, as 15 bytes do not make a UUID.
	ReasonInvalidFilter Reason = "invalid_filter"
	// ReasonInvalidHeaders: a column that is spread into headers holds no JSON object, or a name in it cannot be a header.
	ReasonInvalidHeaders Reason = "invalid_headers"
	// ReasonInvalidAttribute: an attribute that every CloudEvent needs is NULL or empty, or the text of one is not allowed.
	ReasonInvalidAttribute Reason = "invalid_attribute"
	// ReasonInvalidData: the data of a structured CloudEvent is not what its content type says.
	ReasonInvalidData Reason = "invalid_data"
	// ReasonInvalidTimestamp: the timestamp column is NULL, no date or before 1970.
	ReasonInvalidTimestamp Reason = "invalid_timestamp"
	// ReasonInvalidPartition: the partition column is NULL, negative or above 2147483647.
	ReasonInvalidPartition Reason = "invalid_partition"
)

// Poison is the error of a row that can never be published as its rule asks. All of it is copied: it may be kept. Its text holds no
// column value other than the id and, for an invalid topic, that name.
type Poison struct {
	Reason Reason
	// Detail explains the reason for an operator, in one sentence without a full stop.
	Detail string
	// Table is `schema.table`.
	Table string
	// Rule is the index of the rule in [Options.Rules], or -1 for [ReasonUnmatched].
	Rule int
	// Field is the part of the rule that failed, such as `key` or `headers[2]`. Empty for [ReasonUnmatched].
	Field string
	// Column is the column that failed, empty where none did.
	Column string
	// ID is the text of the row's id column, empty where it is unknown.
	ID string
	// Position is `<gtid>#<n>`, the value of [PositionHeader].
	Position string
	// Topic is the topic as far as it is known: also a name that is not valid, cut after 256 bytes.
	Topic string
	// Policy is the rule's own policy for poison records; empty means that the general one counts.
	Policy string
	// Err is the cause, nil where Detail says all.
	Err error
}

// Error gives one line for logs.
func (p *Poison) Error() string {
	where := "poison row in " + p.Table
	if p.ID != "" {
		where += fmt.Sprintf(", id %q", p.ID)
	}
	if p.Position != "" {
		where += ", position " + p.Position
	}
	if p.Field != "" {
		where += fmt.Sprintf(", rule %d %s", p.Rule, p.Field)
	}
	if p.Column != "" {
		where += ", column " + quoteIdentifier(p.Column)
	}
	text := fmt.Sprintf("%s: %s: %s", where, p.Reason, p.Detail)
	if p.Err != nil {
		text += ": " + p.Err.Error()
	}
	return text
}

// Unwrap gives the cause.
func (p *Poison) Unwrap() error { return p.Err }
