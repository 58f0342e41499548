package snapshot

import (
	"context"
	"fmt"
	"strings"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/jsonb"
	"outbox-relay/binlog/value"
)

// pathsAtOnce is how many types one statement asks for.
const pathsAtOnce = 200

// appendImage makes the image of a column of the row at hand.
func (r *Reader) appendImage(dst []byte, i int) ([]byte, error) {
	col, text := &r.plan.table.Columns[i], r.chunk.texts[i]
	if col.Type != event.ColumnJSON || !r.configured(r.at.Tables[0].Table).JSONTypes {
		return value.AppendImage(dst, col, text)
	}
	paths, err := jsonb.Unsure(text)
	if err != nil || len(paths) == 0 {
		return value.AppendImage(dst, col, text)
	}
	types, err := r.jsonTypes(r.ctx, col, text, paths)
	if err != nil {
		return dst, err
	}
	return jsonb.EncodeAs(dst, text, types)
}

// jsonTypes asks for the types of values in a JSON column of the row at hand, on a connection of its own. It gives none where the row has another document by
// now: its text alone has to do then.
func (r *Reader) jsonTypes(ctx context.Context, col *event.Column, text []byte, paths []string) ([]string, error) {
	if r.ask == nil {
		l := r.o.Login
		l.Address = r.address()
		c, err := binlog.Dial(ctx, l)
		if err != nil {
			return nil, err
		}
		r.ask = c
		if err := prepare(ctx, c); err != nil {
			return nil, err
		}
	}
	key := appendKey(nil, r.plan.key, func(i int) []byte { return r.chunk.texts[r.plan.key[i].index] })
	at, err := bounds(r.plan.key, key)
	if err != nil {
		return nil, err
	}
	name := binlog.QuoteName(col.Name)
	var conditions []string
	for _, b := range at[r.plan.own:] {
		conditions = append(conditions, b.expression+" = "+b.literal)
	}
	conditions = append(conditions, fmt.Sprintf("CAST(CAST(%s AS CHAR) AS BINARY) = x'%x'", name, text))
	var types []string
	for len(paths) > 0 {
		n := min(len(paths), pathsAtOnce)
		var list []string
		for _, p := range paths[:n] {
			list = append(list, "JSON_TYPE(JSON_EXTRACT("+name+", "+binlog.Literal(p)+"))")
		}
		paths = paths[n:]
		rows, err := r.ask.Rows(ctx, askTimeout, "SELECT "+strings.Join(list, ", ")+r.plan.from()+where(conditions))
		if err != nil {
			return nil, fmt.Errorf("asking for the types of values in column %s: %w", col.Name, err)
		}
		if len(rows) != 1 {
			return nil, nil
		}
		types = append(types, rows[0]...)
	}
	return types, nil
}
