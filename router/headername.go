package router

import (
	"errors"
	"unicode/utf8"
)

// deadLetterPrefix starts the headers that a dead letter gets in addition, and loses again when it is published once more.
const deadLetterPrefix = "dead-letter-"

var (
	errHeaderEmpty    = errors.New("empty header name")
	errHeaderText     = errors.New("header name is not valid UTF-8")
	errHeaderReserved = errors.New("header name is reserved: the relay itself writes " + PositionHeader + " and " + deadLetterPrefix + "*")
)

// checkHeaderName tells whether a header of a rule or of a spread column may have this name. It does not allocate.
func checkHeaderName(name []byte) error {
	switch {
	case len(name) == 0:
		return errHeaderEmpty
	case !utf8.Valid(name):
		return errHeaderText
	case string(name) == PositionHeader:
		return errHeaderReserved
	case len(name) >= len(deadLetterPrefix) && string(name[:len(deadLetterPrefix)]) == deadLetterPrefix:
		return errHeaderReserved
	}
	return nil
}
