package main

import (
	"net"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/server"
)

// fakeMySQL is a server that says to be of some version and answers the few questions that a relay asks before it looks at the version.
// method is how it wants passwords; with caching_sha2_password it has no key to encrypt them with.
func fakeMySQL(t *testing.T, version, method string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	users := server.NewInMemoryAuthenticationHandler(method)
	if err := users.AddUser("relay", "relay"); err != nil {
		t.Fatal(err)
	}
	s := server.NewServer(version, mysql.DEFAULT_COLLATION_ID, mysql.AUTH_NATIVE_PASSWORD, nil, nil)
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection
				defer c.Close()
				conn, err := s.NewCustomizedConn(c, users, fakeAnswers{version: version})
				for err == nil {
					err = conn.HandleCommand()
				}
			}()
		}
	}()
	return l.Addr().String()
}

type fakeAnswers struct {
	server.EmptyHandler
	version string
}

func (f fakeAnswers) HandleQuery(query string) (*mysql.Result, error) {
	row := []any{"1"} // the activity lock is given
	switch {
	case strings.HasPrefix(query, "SET"):
		return nil, nil
	case strings.HasPrefix(query, "SELECT @@version"):
		row = []any{f.version, "", "11111111-1111-1111-1111-111111111111", "1", "ROW", "FULL", "ON", "0", "", ""}
	}
	names := make([]string, len(row))
	for i := range names {
		names[i] = string(rune('a' + i))
	}
	r, err := mysql.BuildSimpleTextResultset(names, [][]any{row})
	return mysql.NewResult(r), err
}
