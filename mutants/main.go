// Command mutants plants the bugs of mutants/I*/*.patch, one at a time, and wants each one's named
// test to turn red: the tests are tested. A patch is red itself when it does not apply, does not
// compile, touches a test, or when its test stays green, hangs, or is not green to begin with. The
// tree is never touched: it is copied, and the copies are patched.
//
//	go run ./mutants [-list] [-check] [-third [-seed 4711]] [-green] [-j 4] [name of a patch ...]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the command line.
type options struct {
	list, check, third, green bool
	seed                      uint64
	workers                   int
	timeout                   time.Duration
	names                     []string
}

func main() {
	var o options
	flag.BoolVar(&o.list, "list", false, "print the table of planted bugs and stop")
	flag.BoolVar(&o.check, "check", false, "only check that all patches apply and compile, and that their tests exist")
	flag.BoolVar(&o.third, "third", false, "plant a random third of the bugs; all are checked")
	flag.Uint64Var(&o.seed, "seed", 0, "of the random third; without it a new one, which is printed")
	flag.BoolVar(&o.green, "green", false, "the tests are known to be green without a bug: they have just run")
	flag.IntVar(&o.workers, "j", 4, "bugs planted at the same time, 1 to 4: their tests mostly wait")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Minute, "bound of one test; a test that needs it all has not noticed the bug")
	flag.Parse()
	o.workers, o.names = min(max(o.workers, 1), 4), flag.Args()
	if o.seed != 0 {
		o.third = true
	} else {
		o.seed = uint64(time.Now().UnixNano()/1e6%1e6) + 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Stdout, &o); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, o *options) error {
	bugs, err := readBugs("mutants")
	if err != nil {
		return err
	}
	if bugs, err = named(bugs, o.names); err != nil {
		return err
	}
	if err := findTests(".", bugs); err != nil {
		return err
	}
	if o.list {
		printBugs(w, bugs)
		return nil
	}
	tmp, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer os.RemoveAll(tmp)
	lab := &lab{timeout: o.timeout}
	for i := range o.workers {
		dir := filepath.Join(tmp, fmt.Sprint(i))
		if err := copyTree(ctx, ".", dir); err != nil {
			return fmt.Errorf("copy tree: %w", err)
		}
		lab.copies = append(lab.copies, dir)
	}
	fmt.Fprintf(w, "%d planted bugs: do they apply and compile?\n", len(bugs))
	rep := lab.checkAll(ctx, w, bugs)
	if o.check || !rep.good() {
		return rep.close(ctx)
	}
	if o.third {
		all := len(bugs)
		bugs = third(bugs, o.seed)
		again := fmt.Sprintf("go run ./mutants -seed %d", o.seed)
		if o.green {
			again = strings.Replace(again, " -seed", " -green -seed", 1)
		}
		fmt.Fprintf(w, "a random third of them runs, %d of %d, with seed %d; the same again: %s\n", len(bugs), all, o.seed, again)
	}
	if !o.green {
		if rep := lab.checkGreen(ctx, w, bugs); !rep.good() {
			return rep.close(ctx)
		}
	}
	return lab.plantAll(ctx, w, bugs).close(ctx)
}

// named leaves the bugs with these names, I1/NAME or NAME, or all when none is given.
func named(bugs []bug, names []string) ([]bug, error) {
	is := func(b bug, name string) bool { return b.name == name || path.Base(b.name) == name }
	for _, name := range names {
		if !slices.ContainsFunc(bugs, func(b bug) bool { return is(b, name) }) {
			return nil, fmt.Errorf("there is no mutants/I*/%s.patch", name)
		}
	}
	if len(names) > 0 {
		bugs = slices.DeleteFunc(bugs, func(b bug) bool {
			return !slices.ContainsFunc(names, func(name string) bool { return is(b, name) })
		})
	}
	if len(bugs) == 0 {
		return nil, errors.New("no patch to try in mutants/")
	}
	return bugs, nil
}

// third draws a third of the bugs, rounded up, and keeps their order.
func third(bugs []bug, seed uint64) []bug {
	drawn := rand.New(rand.NewPCG(seed, 0)).Perm(len(bugs))[:(len(bugs)+2)/3]
	slices.Sort(drawn)
	var some []bug
	for _, i := range drawn {
		some = append(some, bugs[i])
	}
	return some
}
