package conn_test

import (
	"testing"

	"github.com/IBM/sarama"

	"outbox-relay/relay/kafka/conn"
)

// The example exchange of RFC 7677.
func TestSCRAMOfTheRFC(t *testing.T) {
	t.Parallel()
	c := conn.NewSCRAM256("rOprNGfwEbeRWgbNEkqO")("user", "pencil")
	for _, step := range []struct{ server, client string }{
		{"", "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"},
		{"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
			"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="},
		{"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", ""},
	} {
		got, err := c.Step(step.server)
		if err != nil || got != step.client {
			t.Fatalf("got %q, %v; want %q", got, err, step.client)
		}
	}
	if !c.Done() {
		t.Error("not done")
	}
}

func TestSCRAMRefusesABadServer(t *testing.T) {
	t.Parallel()
	const good = "r=nonceX,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
	for _, steps := range [][]string{
		{"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"},
		{"r=nonce,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"},
		{"r=nonceX,s=,i=4096"},
		{"r=nonceX,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1"},
		{"r=nonceX,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=2000000000"},
		{"e=unknown-user"},
		{good, "e=invalid-proof"},
		{good, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="},
		{good, "v="},
		{good, ""},
	} {
		c := conn.NewSCRAM256("nonce")("user", "pencil")
		var err error
		if _, err = c.Step(""); err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			_, err = c.Step(s)
		}
		if err == nil || c.Done() {
			t.Errorf("%q: err %v, done %v", steps, err, c.Done())
		}
	}
}

var _ sarama.SCRAMClient = conn.NewSCRAM256("")("", "")
