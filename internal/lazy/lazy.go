// Package lazy makes what a process rarely needs when it needs it first: each command pays at its
// start for what packages make before main.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp compiles an expression when it is needed first. One that does not compile panics then.
func Regexp(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
