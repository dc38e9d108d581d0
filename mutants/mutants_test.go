package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// product is a package with a test that notices some bugs.
var product = map[string]string{
	"go.mod": "module example.org/shop\n\ngo 1.26.0\n",
	"internal/shop/shop.go": `package shop

func Sum(a, b int) int {
	return a + b
}
`,
	"internal/shop/shop_test.go": `package shop

import "testing"

func TestSum(t *testing.T) {
	t.Run("of two", func(t *testing.T) {
		if got := Sum(1, 2); got != 3 {
			t.Errorf("Sum(1, 2) = %d, want 3", got)
		}
	})
}

func TestSkipped(t *testing.T) { t.Skip("never runs") }
`,
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

// newLab makes a repository of the product, and copies of it with a change that is not committed.
func newLab(t *testing.T) *lab {
	t.Helper()
	repo := t.TempDir()
	for name, text := range product {
		write(t, filepath.Join(repo, name), text)
	}
	if out, err := exec.Command("git", "-C", repo, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	l := &lab{timeout: 5 * time.Second}
	for i := range 2 {
		dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
		if err := copyTree(t.Context(), repo, dir); err != nil {
			t.Fatal(err)
		}
		l.copies = append(l.copies, dir)
	}
	return l
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// oneBug reads a single patch.
func oneBug(t *testing.T, text string) (bug, error) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.patch"), text)
	bugs, err := readBugs(dir)
	if err != nil {
		return bug{}, err
	}
	return bugs[0], nil
}

func TestVerdicts(t *testing.T) {
	l := newLab(t)
	for _, tc := range []struct {
		name, patch string
		want        string // in the error; "" when the bug is noticed
	}{
		{"a failing test notices", patch("TestSum", "\treturn a - b"), ""},
		{"a failing subtest notices", patch("TestSum/of_two", "\treturn a - b"), ""},
		{"a bug that changes nothing is missed", patch("TestSum", "\treturn b + a"), "stayed green"},
		{"a patch that does not build notices nothing", patch("TestSum", "\treturn a +"), "does not build"},
		{"nor one that breaks a type", patch("TestSum", "\treturn \"\""), "does not build"},
		{"nor one that has gone stale", strings.Replace(patch("TestSum", "\treturn 0"), "-\treturn a + b", "-\treturn b", 1), "no longer applies"},
		{"nor one that hangs", patch("TestSum", "\tfor {}"), "hung"},
		{"nor a test that is gone", patch("TestProduct", "\treturn 0"), `ended as ""`},
		{"nor a skipped one", patch("TestSkipped", "\treturn 0"), `ended as "skip"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := oneBug(t, tc.patch)
			if err != nil {
				t.Fatal(err)
			}
			err = l.plant(t.Context(), l.copies[0], b)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Fatalf("plant = %v, want %q", err, tc.want)
			}
			text, err := os.ReadFile(filepath.Join(l.copies[0], "internal/shop/shop.go"))
			if err != nil || string(text) != product["internal/shop/shop.go"] {
				t.Fatalf("the bug was left behind (%v):\n%s", err, text)
			}
		})
	}
}

func TestPatchFaults(t *testing.T) {
	for _, tc := range []struct{ name, patch, want string }{
		{"no test named", strings.Replace(patch("TestSum", "\treturn 0"), "Test: ", "Tests: ", 1), `no line "Test: ..."`},
		{"a test changed", patchOf("internal/shop/shop_test.go", "TestSum", "", ""), "never in a test"},
		{"the checker changed", patchOf("internal/devenv/checker.go", "TestSum", "", ""), "never in a test"},
		{"no diff", "Invariant: I1\nPackage: p\nTest: TestSum\nBug: none\n", "no diff"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := oneBug(t, tc.patch); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("readBugs = %v, want %q", err, tc.want)
			}
		})
	}
}

func TestPlantAll(t *testing.T) {
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
	if err := l.checkGreen(t.Context(), &out, []bug{noticed, missed}); err != nil {
		t.Fatalf("checkGreen = %v", err)
	}
	if err := l.plantAll(t.Context(), &out, []bug{noticed}); err != nil {
		t.Errorf("plantAll(noticed) = %v", err)
	}
	if err := l.plantAll(t.Context(), &out, []bug{noticed, missed, noticed}); err == nil {
		t.Error("plantAll went on over a missed bug")
	}
	if !strings.Contains(out.String(), "run 3 of 3") {
		t.Errorf("a bug was given up before the third run:\n%s", out.String())
	}
	if want := "3 planted bugs, 2 noticed, 1 missed\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("output lacks %q:\n%s", want, out.String())
	}

	gone := noticed
	gone.test = "TestProduct"
	if err := l.checkGreen(t.Context(), &out, []bug{noticed, gone}); err == nil || !strings.Contains(err.Error(), "TestProduct") {
		t.Errorf("checkGreen with a test that is gone = %v", err)
	}
}
