package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// screen prints lines for people. Safe for concurrent use.
type screen struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	color    bool
	width    int // columns that a record's line may use; 0 means any number
	begun    time.Time
	stages   int
}

const (
	bold  = "\x1b[1m"
	dim   = "\x1b[2m"
	green = "\x1b[32m"
	red   = "\x1b[31m"
)

func newScreen(out io.Writer) *screen {
	s := &screen{out: out, begun: time.Now()}
	f, ok := out.(*os.File)
	if !ok {
		return s
	}
	if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
		s.terminal = true
		s.color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if size.Col >= 60 {
			s.width = int(size.Col)
		}
	}
	return s
}

// paint gives the text in a style, where the output has styles.
func (s *screen) paint(style, text string) string {
	if !s.color {
		return text
	}
	return style + text + "\x1b[0m"
}

func (s *screen) print(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(s.out, strings.Join(lines, "\n")+"\n") // nobody looks: nothing to do about it
}

// stage prints the title of the next part.
func (s *screen) stage(format string, args ...any) {
	s.mu.Lock()
	s.stages++
	title := fmt.Sprintf("%d. %s", s.stages, fmt.Sprintf(format, args...))
	s.mu.Unlock()
	s.print("", s.paint(bold, title))
}

// note prints a line with the time since the start.
func (s *screen) note(format string, args ...any) {
	s.print(s.paint(dim, fmt.Sprintf("%6.1f s  ", time.Since(s.begun).Seconds())) + fmt.Sprintf(format, args...))
}

// fit cuts a line to the width, at a whole character.
func (s *screen) fit(line string) string {
	if s.width == 0 || utf8.RuneCountInString(line) <= s.width {
		return line
	}
	runes := []rune(line)
	return string(runes[:s.width-1]) + "…"
}

// number writes n with a comma between thousands.
func number(n int) string {
	digits := fmt.Sprint(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
