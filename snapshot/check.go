package snapshot

import (
	"context"
	"errors"

	"outbox-relay/binlog"
)

// Found is what Check says of a table.
type Found struct {
	Table string
	Err   error // why it cannot be read, a *Fault; nil where it can, and where it is not there
	// Key are the columns in whose order it is read. Ordered tells whether that is about the order of the inserts.
	Key     []string
	Ordered bool
	Exists  bool
}

// Check looks at tables on a server without reading their rows. Its error is that of a server that cannot be asked.
func Check(ctx context.Context, l binlog.Login, tables []Table) ([]Found, error) {
	c, err := binlog.Dial(ctx, l)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := prepare(ctx, c); err != nil {
		return nil, err
	}
	var all []Found
	for i := range tables {
		f, err := check(ctx, c, &tables[i])
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

func check(ctx context.Context, c *binlog.Conn, t *Table) (Found, error) {
	f := Found{Table: t.Name.String()}
	name := binlog.QuoteName(t.Name.Schema) + "." + binlog.QuoteName(t.Name.Name)
	_, err := c.Rows(ctx, askTimeout, "SELECT 1 FROM "+name+" LIMIT 0")
	switch {
	case binlog.TableMissing(err):
		return f, nil
	case binlog.TableDenied(err):
		f.Err = &Fault{f.Table, "cannot be read by this user", "GRANT SELECT ON " + name + " TO it"}
		return f, nil
	case err != nil:
		return f, err
	}
	p, err := makePlan(ctx, c, t)
	var fault *Fault
	if errors.As(err, &fault) {
		f.Err = fault
		return f, nil
	}
	if err != nil || p == nil {
		return f, err
	}
	f.Exists, f.Key = true, p.names()
	if f.Ordered, err = commitOrder(ctx, c, t, p); err != nil {
		return f, err
	}
	// The statement itself, for what is written in SQL.
	conditions := []string{"FALSE"}
	if t.Where != "" {
		conditions = append(conditions, "("+t.Where+"\n)")
	}
	if _, err := c.Rows(ctx, askTimeout, p.statement(conditions, 1, 1)); binlog.StatementWrong(err) {
		f.Err = &Fault{f.Table, "cannot be selected as snapshot.where says: " + err.Error(), "correct it"}
	} else if err != nil {
		return f, err
	}
	return f, nil
}
