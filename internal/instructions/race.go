//go:build race

package instructions

const race = true
