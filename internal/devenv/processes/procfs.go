// What /proc says of processes, and whose they are.

package processes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrNotOurs says that a server cannot be stopped, killed or copied, because somebody else started
// it.
var ErrNotOurs = errors.New("the server was not started by this process")

// ChildrenOf reads /proc for the processes whose parent is pid.
func ChildrenOf(pid int) ([]int, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var children []int
	for _, path := range paths {
		state, parent := ProcStat(path)
		if parent != pid || state == "Z" {
			continue
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		children = append(children, child)
	}
	return children, nil
}

// Alive reports whether a process runs; one that only waits to be reaped does not.
func Alive(pid int) bool {
	state, _ := ProcStat(fmt.Sprintf("/proc/%d/stat", pid))
	return state != "" && state != "Z" && state != "X"
}

// ProcStat is the state and the parent of a process; "" when it is gone. The name before them may
// hold any character, so they are looked for behind its last parenthesis (proc(5)).
func ProcStat(path string) (state string, parent int) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", 0
	}
	s := string(b)
	fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(fields) < 2 {
		return "", 0
	}
	if parent, err = strconv.Atoi(fields[1]); err != nil {
		return "", 0
	}
	return fields[0], parent
}
