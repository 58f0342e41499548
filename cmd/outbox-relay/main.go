// Command outbox-relay publishes the rows of MySQL outbox tables to Kafka.
package main

import (
	"fmt"
	"os"
)

func main() {
	code, err := execute(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "outbox-relay: "+sentence(err))
	}
	os.Exit(code)
}
