// Package redact takes secrets out of what servers say. A server, or a plugin of it, can repeat what it was told in its refusal, and refusals are
// logged.
package redact

import "strings"

// shortest is the length from which on a secret is looked for: a shorter one is found in ordinary words, which say nothing about it.
const shortest = 4

// Text is text with stars for the secret. A secret that is the name of the user is none, and would take the name out of sentences.
func Text(text, secret, user string) string {
	if len(secret) < shortest || secret == user {
		return text
	}
	return strings.ReplaceAll(text, secret, "***")
}

// Error is err, or, if its text holds the secret, one with another text that wraps it.
func Error(err error, secret, user string) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if clean := Text(text, secret, user); clean != text {
		return &redacted{clean, err}
	}
	return err
}

type redacted struct {
	text string
	err  error
}

func (e *redacted) Error() string { return e.text }
func (e *redacted) Unwrap() error { return e.err }
