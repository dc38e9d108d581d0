// The result of a check.

package sink

// Finding is the result of one step of a sink's check.
type Finding struct {
	Name   string
	OK     bool
	Warn   bool   // not OK, but the relay can work
	Detail string // what was found
	Fix    string // what to do about it; "" when OK
}
