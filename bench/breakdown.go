// A profile by what the relay does.
package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// breakdown is what the two profiles of a load say.
type breakdown struct {
	load        runSpec
	time        shares // µs
	allocations shares // objects
}

// shares are the parts of a profile, per event.
type shares map[part]*share

// part is what a stack belongs to.
type part struct {
	owner string // package of this module, or what the runtime does by itself
	kind  string
}

// share is how much that is, and the functions of ours in which it happens.
type share struct {
	value     float64
	functions map[string]float64
}

const (
	systemCalls = "system calls"
	ourCode     = "code"
	ourModule   = "github.com/cdc-relay/cdc-relay/"
)

// readTraces reads what `go tool pprof -traces` prints: stacks between lines of dashes, the leaf
// first, and before it the value.
func readTraces(text string, events int) (shares, error) {
	all := shares{}
	for _, block := range strings.Split(text, "-----------+")[1:] {
		value, stack, err := readTrace(block)
		if err != nil {
			return nil, err
		}
		if len(stack) > 0 && !slices.ContainsFunc(stack, func(f string) bool { return strings.HasPrefix(f, "runtime/pprof.") }) {
			all.add(stack, value/float64(events))
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("read profile: it is empty")
	}
	return all, nil
}

func readTrace(block string) (value float64, stack []string, err error) {
	for line := range strings.Lines(block) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || strings.HasPrefix(fields[0], "---") || strings.HasSuffix(fields[0], ":"):
			// a label
			continue
		case len(stack) == 0:
			if len(fields) < 2 {
				return 0, nil, fmt.Errorf("read profile: no value in %q", line)
			}
			if value, err = strconv.ParseFloat(strings.TrimRight(fields[0], "uµs"), 64); err != nil {
				return 0, nil, fmt.Errorf("read profile: %w", err)
			}
			stack = append(stack, fields[1])
		default:
			stack = append(stack, fields[0])
		}
	}
	return value, stack, nil
}

func (all shares) add(stack []string, value float64) {
	p, function := partOf(stack)
	s := all[p]
	if s == nil {
		s = &share{functions: map[string]float64{}}
		all[p] = s
	}
	s.value += value
	s.functions[function] += value
}

// partOf gives a stack to the innermost package of ours in it, for its own code or for what it asks
// of the kernel, or to what the runtime does by itself.
func partOf(stack []string) (p part, function string) {
	p.kind = ourCode
	if leaf := stack[0]; strings.HasPrefix(leaf, "syscall.") || strings.HasPrefix(leaf, "internal/runtime/syscall") || leaf == "runtime.futex" {
		p.kind = systemCalls
	}
	for _, frame := range stack {
		if name, ours := strings.CutPrefix(frame, ourModule); ours {
			dir, rest := "", name
			if slash := strings.LastIndexByte(name, '/'); slash >= 0 {
				dir, rest = name[:slash+1], name[slash+1:]
			}
			pkg, function, _ := strings.Cut(rest, ".")
			return part{dir + pkg, p.kind}, function
		}
		if frame == "main.main" || strings.HasPrefix(frame, "main.") {
			return part{"cmd/cdc-relay", p.kind}, strings.TrimPrefix(frame, "main.")
		}
	}
	for _, own := range []struct{ function, owner string }{
		{"runtime.gcBgMarkWorker", "garbage collection"},
		{"runtime.bgsweep", "garbage collection"},
		{"runtime.bgscavenge", "garbage collection"},
		{"runtime.gcStart", "garbage collection"},
		{"runtime.mcall", "scheduler"},
		{"runtime.mstart", "scheduler"},
		{"runtime.schedule", "scheduler"},
		{"runtime.sysmon", "scheduler"},
		{"runtime.goexit0", "scheduler"},
	} {
		if slices.Contains(stack, own.function) {
			return part{own.owner, ""}, stack[0]
		}
	}
	return part{"others", ""}, stack[len(stack)-1]
}

func (all shares) total() (sum float64) {
	for _, s := range all {
		sum += s.value
	}
	return sum
}

// table writes the parts, the largest first; those below a hundredth are one.
func (all shares) table(unit string) string {
	var b strings.Builder
	total := all.total()
	fmt.Fprintf(&b, "| | %s per event | share | most of it in |\n|---|---|---|---|\n", unit)
	parts := slices.SortedFunc(maps.Keys(all), func(a, b part) int {
		return cmp.Or(-cmp.Compare(all[a].value, all[b].value), strings.Compare(a.owner+a.kind, b.owner+b.kind))
	})
	small := 0.0
	for _, p := range parts {
		s := all[p]
		if s.value < total/100 {
			small += s.value
			continue
		}
		name := p.owner
		if p.kind != "" {
			name += ": " + p.kind
		}
		fmt.Fprintf(&b, "| %s | %.3f | %.0f %% | %s |\n", name, s.value, 100*s.value/total, s.most())
	}
	fmt.Fprintf(&b, "| the rest | %.3f | %.0f %% | |\n", small, 100*small/total)
	fmt.Fprintf(&b, "| all | %.3f | | |\n", total)
	return b.String()
}

// most are the functions that make up most of a share, at most four.
func (s *share) most() string {
	names := slices.SortedFunc(maps.Keys(s.functions), func(a, b string) int {
		return cmp.Or(-cmp.Compare(s.functions[a], s.functions[b]), strings.Compare(a, b))
	})
	var text []string
	for _, name := range names[:min(4, len(names))] {
		if s.functions[name] < s.value/20 {
			break
		}
		text = append(text, fmt.Sprintf("`%s` %.0f %%", name, 100*s.functions[name]/s.value))
	}
	return strings.Join(text, ", ")
}
