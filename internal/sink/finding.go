package sink

// Finding is one thing that the check of a sink has looked at.
type Finding struct {
	Name   string
	OK     bool
	Warn   bool   // not OK, and the relay can work all the same
	Detail string // what was found
	Fix    string // what to do about it; "" when OK
}
