package main

import (
	"context"
	"errors"
	"io"
)

func docsCommand(context.Context, []string, io.Writer) error { return errors.New("later") }
