package preflight

import "fmt"

// State is how a precondition was found.
type State string

const (
	OK      State = "ok"
	Warning State = "warning" // it works, and something is at risk
	Failed  State = "failed"  // a relay would not run, or would stop at the first row
	Unknown State = "unknown" // it could not be looked at
)

// Item is one precondition.
type Item struct {
	// Area groups items: "checkpoint", "source db1:3306", "kafka".
	Area string `json:"area"`
	// Name is the precondition within the area.
	Name  string `json:"name"`
	State State  `json:"state"`
	// Detail says what was found, and why that matters where it is not ok.
	Detail string `json:"detail"`
	// Remedy says in words what to do; may be empty.
	Remedy string `json:"remedy,omitempty"`
	// Commands are SQL statements or shell commands to run as they are, but for names in <>.
	Commands []string `json:"commands,omitempty"`
}

// Report is what was found, in the order of the data's way.
type Report struct {
	Items []Item `json:"items"`
}

// Count gives the number of items in a state.
func (r *Report) Count(s State) int {
	n := 0
	for i := range r.Items {
		if r.Items[i].State == s {
			n++
		}
	}
	return n
}

// section collects the items of one area.
type section struct {
	area  string
	items []Item
}

func (s *section) add(state State, name, format string, args ...any) *Item {
	s.items = append(s.items, Item{Area: s.area, Name: name, State: state, Detail: fmt.Sprintf(format, args...)})
	return &s.items[len(s.items)-1]
}

// do sets the remedy of an item.
func (i *Item) do(remedy string, commands ...string) {
	i.Remedy, i.Commands = remedy, commands
}
