// Command bench measures the relay on this machine, with real private servers, against the least that could do the same
// work, and says whether what the project promises holds.
//
// Throughput: rows are committed while the relay is stopped; then it is started, and the queue's depth, asked of the
// broker, is followed from the first message to the last. The baseline is a bare publisher of the same messages
// (amqp091-go, persistent, mandatory, 2,000 unconfirmed at most on a connection, writes gathered as the relay's are),
// measured by the same watch; it has the better of 1, 2 and 4 connections and the relay has as many. After every run of
// the relay the queue is read and compared with the table: nothing lost, nothing twice, order kept.
//
// Latency: from just before COMMIT is sent to the arrival at a consumer, both clocks being this process's.
//
// Baseline and relay take turns. A row's numbers are medians; its A/A is the baseline against itself, odd turns against
// even ones. Beyond 10 % the row is void and measured again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	var opt options
	only := flag.String("only", "", "measure the rows whose name matches this regular expression")
	flag.BoolVar(&opt.full, "full", false, "every cell in alternating pairs, with more events (hours)")
	flag.BoolVar(&opt.quick, "quick", false, "a smoke run: few events, one pair, no verdict, no file")
	flag.StringVar(&opt.name, "name", "", "write bench/results/NAME.md; default: rabbitmq, or rabbitmq-full (with -only: no file)")
	flag.Parse()
	var err error
	if opt.only, err = regexp.Compile(*only); err == nil {
		if opt.name == "" && *only == "" && !opt.quick {
			opt.name = map[bool]string{false: "rabbitmq", true: "rabbitmq-full"}[opt.full]
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, opt, os.Stdout, os.Stderr)
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the command line.
type options struct {
	full, quick bool
	only        *regexp.Regexp
	name        string // of the file in bench/results; "" for none
}

var errMissed = errors.New("a must was missed, or its run was void")

// run measures what opt selects, writes progress to progress and the table to out. The error is errMissed when all was
// measured and a must does not hold.
func run(ctx context.Context, opt options, out, progress io.Writer) (err error) {
	began := time.Now()
	s, err := newStand(ctx, opt, began, func(format string, args ...any) {
		fmt.Fprintf(progress, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	rep := report{quick: opt.quick, full: opt.full, began: began}
	if rep.machine, err = s.machine(ctx); err != nil {
		return err
	}
	for _, r := range s.rows() {
		if !opt.only.MatchString(r.name) {
			continue
		}
		if strings.HasPrefix(r.name, cellPrefix) && s.past(lastCell) {
			rep.skipped = append(rep.skipped, r.name)
			continue
		}
		s.say("%s", r.name)
		found, err := r.measure(ctx)
		if err != nil {
			return fmt.Errorf("measure %s: %w", r.name, err)
		}
		for _, f := range found {
			s.say("    %s: %s", f.name, f.summary())
		}
		rep.results = append(rep.results, found...)
	}
	rep.took = time.Since(began)
	if err := rep.write(out); err != nil {
		return err
	}
	if opt.name != "" {
		if err := rep.save(filepath.Join("bench", "results", opt.name+".md")); err != nil {
			return err
		}
	}
	if rep.missed() {
		return errMissed
	}
	return nil
}
