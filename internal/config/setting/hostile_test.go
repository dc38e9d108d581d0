package setting

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// What makes a YAML parser slow or large is refused with one fault before it is parsed. Memory
// stands for time here: the parser allocates by the square of the nesting.
func TestYAMLBombs(t *testing.T) {
	laughs := "a: &a [x, x]\n"
	for c := byte('b'); c <= 'z'; c++ {
		laughs += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+string(c-1)+", ", 9) + "]\n"
	}
	for name, c := range map[string]struct{ text, want string }{
		"aliases of aliases":  {laughs, "anchors, aliases, tags and merge keys are not used here"},
		"nested lists":        {strings.Repeat("[", MaxFileBytes), "more than 20000 YAML tokens"},
		"nested mappings":     {strings.Repeat("{a: ", MaxFileBytes/4), "more than 20000 YAML tokens"},
		"nested block lists":  {strings.Repeat("- ", MaxFileBytes/2), "more than 20000 YAML tokens"},
		"very many keys":      {strings.Repeat("key: 1\n", MaxFileBytes/7), "more than 20000 YAML tokens"},
		"very many anchors":   {strings.Repeat("&a ", MaxFileBytes/3), "more than 20000 YAML tokens"},
		"very many documents": {strings.Repeat("---\n", MaxFileBytes/4), "more than 20000 YAML tokens"},
		"a large file":        {strings.Repeat("#", MaxFileBytes+1), "more than 256 KiB"},
		"as nested as it may": {strings.Repeat("[", maxTokens), "not valid YAML"},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		root, faults := Parse("relay.yaml", []byte(c.text))
		runtime.ReadMemStats(&after)
		if len(faults) == 0 || !strings.Contains(faults[0].Error(), c.want) {
			t.Errorf("%s: %v, %v; want %q", name, root, faults, c.want)
		}
		if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 1024 {
			t.Errorf("%s: %d MiB allocated", name, used)
		}
	}
}

// The configuration is read no further than it may be long, whatever the path names.
func TestLargeFileIsNotReadWhole(t *testing.T) {
	content, err := ReadFile("/dev/zero")
	if err != nil || len(content) != MaxFileBytes+1 {
		t.Errorf("%d bytes, %v", len(content), err)
	}
}

// A path that is no small regular file costs an error, not the memory, and does not hang.
func TestSecretFileOfAnotherKind(t *testing.T) {
	dir := t.TempDir()
	fifo, large, exact := filepath.Join(dir, "fifo"), filepath.Join(dir, "large"), filepath.Join(dir, "exact")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int64{large: 64<<10 + 1, exact: 64 << 10} {
		if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		fifo:        fifo + " is not a regular file",
		"/dev/zero": "/dev/zero is not a regular file",
		dir:         dir + " is not a regular file",
		large:       large + " has more than 64 KiB",
	} {
		if value, err := Expand("${file:"+path+"}", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d bytes, %v; want %q", path, len(value), err, want)
		}
	}
	if value, err := Expand("${file:"+exact+"}", nil); err != nil || len(value) != 64<<10 {
		t.Errorf("%d bytes, %v", len(value), err)
	}
}

// A file that is another program's has thousands of unknown keys; some are shown.
func TestFaultsAreShownUpToALimit(t *testing.T) {
	faults := make(Faults, 1000)
	for i := range faults {
		faults[i] = &Fault{What: "unknown key"}
	}
	if text := faults.Error(); strings.Count(text, "\n") != maxShown+1 || !strings.HasSuffix(text, "and 950 more") {
		t.Errorf("%d lines, ends with %q", strings.Count(text, "\n"), text[len(text)-20:])
	}
}
