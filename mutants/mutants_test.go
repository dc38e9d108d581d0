package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// product is a package with a test that notices some bugs.
var product = map[string]string{
	"go.mod": "module example.org/shop\n\ngo 1.26.0\n",
	"internal/shop/shop.go": `package shop

func Sum(a, b int) int {
	return a + b
}

const One = 1
`,
	"internal/shop/shop_test.go": `package shop

import (
	"fmt"
	"os"
	"testing"
)

func TestSum(t *testing.T) {
	t.Run("of two", func(t *testing.T) {
		if got := Sum(1, 2); got != 3 {
			t.Errorf("Sum(1, 2) = %d, want 3", got)
		}
	})
}

func TestOne(t *testing.T) {
	if One != 1 {
		t.Error("wrong")
	}
}

func TestSkipped(t *testing.T) { t.Skip("never runs") }

func TestLong(t *testing.T) {
	os.WriteFile("pid", []byte(fmt.Sprint(os.Getpid())), 0o644)
	Sum(1, 2)
	os.Remove("pid")
}
`,
	"internal/shop/shop_all_test.go": `//go:build testall

package shop

import "testing"

func TestSumOfMany(t *testing.T) {
	if Sum(40, 2) != 42 {
		t.Error("wrong")
	}
}
`,
	"internal/shop/shop_nightly_test.go": "//go:build nightly\n\npackage shop\n\nfunc TestSumOfAll(t *testing.T) {}\n",
}

// patch is a planted bug: Sum's line replaced.
func patch(test, line string) string {
	return patchOf("internal/shop/shop.go", test, "\treturn a + b", line)
}

func patchOf(file, test, old, line string) string {
	return fmt.Sprintf(`Invariant: I1
Package: ./internal/shop
Test: %s
Bug: Sum does not add

--- a/%s
+++ b/%s
@@ -1,5 +1,5 @@
 package shop
 
 func Sum(a, b int) int {
-%s
+%s
 }
`, test, file, file, old, line)
}

// patchLine replaces any line.
func patchLine(old, line, test string) string {
	var diff strings.Builder
	for at := range strings.Lines(product["internal/shop/shop.go"]) {
		if at == old+"\n" {
			fmt.Fprintf(&diff, "-%s\n+%s\n", old, line)
		} else {
			diff.WriteString(" " + at)
		}
	}
	head, _, _ := strings.Cut(patch(test, ""), "@@")
	return head + "@@ -1,7 +1,7 @@\n" + diff.String()
}

// newLab is a lab in a tree of the product.
func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{root: t.TempDir(), dir: t.TempDir(), timeout: 5 * time.Minute, workers: 2}
	for name, text := range product {
		await.Must(t, write(filepath.Join(l.root, name), []byte(text)))
	}
	return l
}

// oneBug reads a single patch.
func oneBug(t *testing.T, text string) (*bug, error) {
	t.Helper()
	dir := t.TempDir()
	await.Must(t, write(filepath.Join(dir, "I1", "a.patch"), []byte(text)))
	bugs, err := readBugs(dir)
	if err != nil {
		return nil, err
	}
	return &bugs[0], nil
}

func TestVerdicts(t *testing.T) {
	l := newLab(t)
	other, err := oneBug(t, patch("TestSum", "\treturn 7"))
	await.Must(t, err)
	for _, tc := range []struct {
		name, patch string
		merged      bool   // in the build with others
		want        string // in the error; "" when the bug is noticed
	}{
		{"a failing test notices", patch("TestSum", "\treturn a - b"), true, ""},
		{"a failing subtest notices", patch("TestSum/of_two", "\treturn a - b"), true, ""},
		{"a bug that changes nothing is missed", patch("TestSum", "\treturn b + a"), true, "stayed green"},
		{"a patch that does not build notices nothing", patch("TestSum", "\treturn a +"), false, "does not build"},
		{"nor one that breaks a type", patch("TestSum", "\treturn \"\""), false, "does not build"},
		{"nor one that has gone stale", strings.Replace(patch("TestSum", "\treturn 0"), "-\treturn a + b", "-\treturn b", 1), false, "no longer applies"},
		{"nor one that hangs", patch("TestSum", "\tfor {}"), true, "hung"},
		{"nor a test that is gone", patch("TestProduct", "\treturn 0"), true, `ended as ""`},
		{"nor a skipped one", patch("TestSkipped", "\treturn 0"), true, `ended as "skip"`},
		{"what is no function notices by itself", patchLine("const One = 1", "const One = 2", "TestOne"), false, ""},
		{"nor is the head of a function", patchLine("func Sum(a, b int) int {", "func Sum(b, a int) int {", "TestSum"), false, "stayed green"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := oneBug(t, tc.patch)
			await.Must(t, err)
			in := l.build(t.Context(), t.TempDir(), b.pkg, []*bug{other, b})
			if merged := in != nil && in.has[b] != ""; merged != tc.merged {
				t.Errorf("it is in the build with others: %v", merged)
			}
			l.timeout = 5 * time.Minute
			if tc.want == "hung" {
				l.timeout = time.Second
			}
			err = l.plant(t.Context(), in, b)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("plant = %v, want %q", err, tc.want)
			}
			text, err := os.ReadFile(filepath.Join(l.root, "internal/shop/shop.go"))
			if err != nil || string(text) != product["internal/shop/shop.go"] {
				t.Fatalf("the bug is in the tree (%v):\n%s", err, text)
			}
		})
	}
}

// Bugs of one package are merged whatever their functions look like, and none shows when another
// one is planted.
func TestMergedBugs(t *testing.T) {
	const before = `package shop

import "strings"

type cart[T any] struct{ all []T }

func (c *cart[T]) add(more ...T) (n int) {
	c.all = append(c.all, more...)
	return len(c.all)
}

func clear(lines []string) { strings.Join(lines, "") }
`
	f := &mergedFile{old: before}
	await.Must(t, f.add("PlantedBug0", strings.Replace(before, "return len(c.all)", "return 0", 1)))
	await.Must(t, f.add("PlantedBug1", strings.Replace(before, "more...)", "more[1:]...)", 1)))
	await.Must(t, f.add("PlantedBug2", strings.Replace(before, `strings.Join(lines, "")`, "", 1)))
	for _, want := range []string{
		`func (c *cart[T]) add(more ...T) (n int) { if plantedBug == "PlantedBug0" { return c.addPlantedBug0(more...) };  if plantedBug == "PlantedBug1" { return c.addPlantedBug1(more...) }; `,
		"\tc.all = append(c.all, more...)\n\treturn len(c.all)\n}\n",
		"func (c *cart[T]) addPlantedBug0(more ...T) (n int) {\n\tc.all = append(c.all, more...)\n\treturn 0\n}\n",
		"func (c *cart[T]) addPlantedBug1(more ...T) (n int) {\n\tc.all = append(c.all, more[1:]...)\n\treturn len(c.all)\n}\n",
		`func clear(lines []string) { if plantedBug == "PlantedBug2" { clearPlantedBug2(lines); return };  strings.Join(lines, "") }`,
	} {
		if !strings.Contains(f.text(), want) {
			t.Errorf("there is no %s in\n%s", want, f.text())
		}
	}
	for _, old := range []string{
		"func (cart) n() int { return 1 }", "func n(int) int { return 1 }", "func n(_ int) int { return 1 }", "func n[T any](of T) int { return 1 }",
		"var n = 1", "import \"1\"",
	} {
		f := &mergedFile{old: "package shop\n\n" + old + "\n"}
		if err := f.add("PlantedBug0", strings.ReplaceAll(f.old, "1", "2")); err == nil {
			t.Errorf("%s was merged:\n%s", old, f.text())
		}
	}
}

func TestFindTests(t *testing.T) {
	l := newLab(t)
	b, err := oneBug(t, patch("TestSum/of_two", "\treturn 0"))
	if err != nil {
		t.Fatal(err)
	}
	gone := *b
	gone.test = "TestSu"
	if err := findTests(l.root, []bug{*b}); err != nil {
		t.Errorf("findTests = %v", err)
	}
	late, nightly := *b, *b
	late.test, nightly.test = "TestSumOfMany", "TestSumOfAll"
	if err := findTests(l.root, []bug{late}); err != nil {
		t.Errorf("findTests of a test of the tier all = %v", err)
	}
	if err := l.plant(t.Context(), nil, &late); err != nil {
		t.Errorf("plant with a test of the tier all = %v", err)
	}
	if err := findTests(l.root, []bug{nightly}); err == nil {
		t.Error("findTests found a nightly test")
	}
	if err := findTests(l.root, []bug{*b, gone}); err == nil || !strings.Contains(err.Error(), "no TestSu in ./internal/shop") {
		t.Errorf("findTests of a test that is gone = %v", err)
	}
}

func TestPatchFaults(t *testing.T) {
	for _, tc := range []struct{ name, patch, want string }{
		{"no test named", strings.Replace(patch("TestSum", "\treturn 0"), "Test: ", "Tests: ", 1), `no line "Test: ..."`},
		{"a test changed", patchOf("internal/shop/shop_test.go", "TestSum", "", ""), "never in a test"},
		{"the checker changed", patchOf("internal/devenv/checker.go", "TestSum", "", ""), "never in a test"},
		{"another's folder", strings.Replace(patch("TestSum", "\treturn 0"), "Invariant: I1", "Invariant: I2", 1), "folder of I1"},
		{"no diff", "Invariant: I1\nPackage: p\nTest: TestSum\nBug: none\n", "no diff"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := oneBug(t, tc.patch); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("readBugs = %v, want %q", err, tc.want)
			}
		})
	}
}

func TestTryAll(t *testing.T) {
	l := newLab(t)
	noticed, err := oneBug(t, patch("TestSum", "\treturn 0"))
	if err != nil {
		t.Fatal(err)
	}
	missed, err := oneBug(t, patch("TestSum", "\treturn b + a"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := l.tryAll(t.Context(), &out, []bug{*noticed}).close(t.Context()); err != nil {
		t.Errorf("a noticed bug: %v\n%s", err, out.String())
	}
	out.Reset()
	gone := *noticed
	gone.test = "TestProduct"
	if err := l.tryAll(t.Context(), &out, []bug{*noticed, *missed, gone, *noticed}).close(t.Context()); err == nil {
		t.Error("bugs that were missed are no error")
	}
	for _, want := range []string{
		"without a bug: ./internal/shop", "  4/4 ", "MISSED ", "run 3 of 3", "failed: mutants/I1/a.patch (TestSum",
		`failed: mutants/I1/a.patch (TestProduct`, `not green but ""`, "\n2 passed, 2 failed\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
}

// An interrupt ends the test that runs, and its go command. What comes after it is not tried.
func TestInterrupt(t *testing.T) {
	l := newLab(t)
	l.timeout, l.workers = time.Hour, 1
	b, err := oneBug(t, patch("TestLong", "\tfor {}"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan string)
	go func() {
		var out bytes.Buffer
		if err := l.tryAll(ctx, &out, []bug{*b, *b}).close(ctx); err == nil {
			out.WriteString("no error")
		}
		ended <- out.String()
	}()
	var pid string
	await.Until(t, "the test's process", func() bool {
		text, err := os.ReadFile(filepath.Join(l.root, "internal/shop/pid"))
		pid = string(text)
		return err == nil && pid != ""
	})
	interrupt()
	if got, want := <-ended, "interrupted: 2 of 2 planted bugs were not tried\n0 passed, 0 failed\n"; !strings.HasSuffix(got, want) {
		t.Errorf("output %q, want %q", got, want)
	}
	await.Until(t, "the end of the test's process", func() bool {
		stat, err := exec.Command("ps", "-o", "stat=", "-p", pid).Output()
		return err != nil || strings.HasPrefix(string(stat), "Z")
	})
}

// The patches of this tree: make test finds here what make mutants would find later.
func TestPatches(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	bugs, err := readBugs(filepath.Join(root, "mutants"))
	if err != nil {
		t.Fatal(err)
	}
	if err := findTests(root, bugs); err != nil {
		t.Error(err)
	}
	if strays, err := filepath.Glob("*.patch"); err != nil || len(strays) > 0 {
		t.Errorf("patches in no folder of an invariant are never planted: %v, %v", strays, err)
	}
	of := map[string]int{}
	l := &lab{root: root}
	for i := range bugs {
		b := &bugs[i]
		of[b.invariant]++
		if _, err := l.patch(t.Context(), t.TempDir(), b); err != nil {
			t.Errorf("mutants/%s.patch: %v", b.name, err)
		}
	}
	for i := 1; i <= 12; i++ {
		if of[fmt.Sprintf("I%d", i)] == 0 {
			t.Errorf("no planted bug breaks I%d of ARCHITECTURE.md", i)
		}
	}
}
