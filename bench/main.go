// Command bench measures the relay on this machine, with real private servers, beside the least
// that could do the same work, and writes the tables that the pages show.
//
// One table says what is measured: row (rows.go) is what is started, what is loaded, and which
// figures of it count. Every run has a database, a slot and a queue or topic of its own, which are
// gone afterwards. After every run of the relay what has arrived is compared with the table of the
// database: nothing lost, nothing twice, each key in order.
//
// Throughput: rows are committed while the program is stopped; then it is started, and what the
// broker has is counted, from the first message to the last. Latency: from just before COMMIT is
// sent to the arrival at a consumer, both by this process's clock.
//
// Baseline and relay take turns. A figure is the median; its A/A is the baseline against itself,
// odd turns against even ones. A figure is void when a baseline that differs by as much would turn
// its verdict around.
//
// With -base the relay of an earlier commit and that of the checkout take turns instead, and the
// exit code says whether the new one is worse (compare.go).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/pages"
)

func main() {
	var opt options
	only := flag.String("only", "", "measure the rows whose broker/report/row matches this regular expression; with -base broker/row")
	flag.StringVar(&opt.base, "base", "", "a commit, whose relay is compared with the checkout's, instead of the rows")
	flag.IntVar(&opt.tabs, "tabs", 0, "with -base: as many tabs of the console are open at the checkout's relay in the row live")
	flag.BoolVar(&opt.quick, "quick", false, "a smoke run: few events, one pair, no verdict, no file")
	flag.Parse()
	var err error
	if opt.only, err = regexp.Compile(*only); err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		if err = os.Chdir(pages.Root()); err == nil { // results and pages are there
			err = bench(ctx, opt, os.Stdout, os.Stderr)
		}
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	base  string // a commit, or ""
	tabs  int    // of the console, at the checkout's relay beside that commit's
	quick bool
	only  *regexp.Regexp
}

// git is what git says.
func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-c", "safe.directory=*"}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

var (
	errMissed = errors.New("a figure is not what it must be, or its run was void")
	errWorse  = errors.New("the new build is worse")
)

// bench measures what opt selects, writes progress to progress and the reports to out, and the
// tables of the pages again. Whatever becomes of one broker's rows, the other's are measured. The
// error is errMissed or errWorse when all was measured.
func bench(ctx context.Context, opt options, out, progress io.Writer) (err error) {
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(progress, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	var names []string
	for _, k := range kinds {
		s := &stand{kind: k, quick: opt.quick, say: say}
		for _, r := range s.all(opt) {
			names = append(names, r.path(k))
		}
		if len(s.selected(opt)) > 0 && ctx.Err() == nil {
			err = errors.Join(err, s.served(ctx, func() error { return s.measure(ctx, opt, out) }))
		}
	}
	if !slices.ContainsFunc(names, opt.only.MatchString) {
		return fmt.Errorf("-only %q selects none of %s", opt.only, strings.Join(names, ", "))
	}
	if opt.base == "" && !opt.quick {
		err = errors.Join(err, rewritePages())
	}
	return err
}

// all are the rows of a broker, and selected those that opt names.
func (s *stand) all(opt options) []row {
	if opt.base != "" {
		return s.comparedRows()
	}
	return s.rows()
}

func (s *stand) selected(opt options) []row {
	return slices.DeleteFunc(s.all(opt), func(r row) bool { return !opt.only.MatchString(r.path(s.kind)) })
}

// measure measures the selected rows, report by report.
func (s *stand) measure(ctx context.Context, opt options, out io.Writer) (err error) {
	rows := s.selected(opt) // there is a broker now
	if opt.base != "" {
		return s.compare(ctx, opt.base, opt.tabs, rows, out)
	}
	var missed error
	for _, name := range reports {
		others := func(r row) bool { return r.report != name }
		mine := slices.DeleteFunc(slices.Clone(rows), others)
		if len(mine) == 0 {
			continue
		}
		rep := report{name: name, kind: s.kind, quick: s.quick, began: time.Now(), whole: len(mine) == len(slices.DeleteFunc(s.all(opt), others))}
		for _, r := range mine {
			s.say("%s", r.path(s.kind))
			found, err := s.turns(ctx, r)
			if err != nil {
				return fmt.Errorf("measure %s: %w", r.path(s.kind), err)
			}
			rep.results = append(rep.results, found...)
		}
		if rep.machine, err = s.machine(ctx, name); err != nil {
			return err
		}
		if err := rep.publish(out); errors.Is(err, errMissed) {
			missed = err
		} else if err != nil {
			return err
		}
	}
	return missed
}
