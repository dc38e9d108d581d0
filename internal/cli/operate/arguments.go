// Arguments and names of the operators' commands.

package operate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cdc-relay/cdc-relay/internal/cli/command"
	"github.com/cdc-relay/cdc-relay/internal/cli/output"
	"github.com/cdc-relay/cdc-relay/internal/dlq"
)

// numbers reads numbers of rows, requests or jobs, which a command shows.
func numbers(what, shown string, args []string) ([]int64, error) {
	var ns []int64
	for _, arg := range args {
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || n <= 0 {
			return nil, command.UsageError(fmt.Sprintf("%q is not the number of %s; want one that `%s` shows, such as 17", arg, what, shown))
		}
		ns = append(ns, n)
	}
	return ns, nil
}

func parseRate(s string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSuffix(s, "/s"))
	if err != nil || n < 1 || n > dlq.MaxRate {
		return 0, errors.New("--rate is " + strconv.Quote(s) + ", want a whole number per second such as 50/s")
	}
	return n, nil
}

// commandName is an action on the command line and in messages.
func commandName(k dlq.Kind) string {
	if k == dlq.ToDeadLetter {
		return "dead-letter"
	}
	return output.Clean(string(k))
}

// tableCommand is the command of a table's rows.
func tableCommand(of *dlq.Table) string {
	if of == dlq.Deferred {
		return "cdc-relay deferred"
	}
	return "cdc-relay dead-letters"
}
