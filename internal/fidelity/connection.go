package main

import (
	"fmt"

	"github.com/go-mysql-org/go-mysql/client"
	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-sql-driver/mysql"
)

// connection is a session whose results stay the text that the server sent; database/sql would read numbers into numbers.
type connection struct{ *client.Conn }

func connect(dsn string) (*connection, error) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	c, err := client.Connect(config.Addr, config.User, config.Passwd, config.DBName)
	if err != nil {
		return nil, err
	}
	return &connection{c}, nil
}

// exec runs the statements in order and stops at the first error.
func (c *connection) exec(statements ...string) error {
	for _, s := range statements {
		if _, err := c.Execute(s); err != nil {
			return fmt.Errorf("%.6000s: %w", s, err)
		}
	}
	return nil
}

// query gives the rows in the text protocol; nil is NULL.
func (c *connection) query(statement string) ([][]*string, error) {
	result, err := c.Execute(statement)
	if err != nil {
		return nil, fmt.Errorf("%.6000s: %w", statement, err)
	}
	var out [][]*string
	for _, data := range result.RowDatas {
		row, rest := make([]*string, len(result.Fields)), []byte(data)
		for i := range row {
			v, null, n, err := gomysql.LengthEncodedString(rest)
			if err != nil {
				return nil, fmt.Errorf("reading the answer to %.200s: %w", statement, err)
			}
			if rest = rest[n:]; !null {
				s := string(v)
				row[i] = &s
			}
		}
		out = append(out, row)
	}
	return out, nil
}
