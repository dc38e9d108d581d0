package debezium

import (
	"bufio"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/cdc-relay/cdc-relay/internal/event"
)

// answers are Java's: testdata/Topics.java says how they were made.
func answers(t *testing.T) (all [][4]string) {
	t.Helper()
	f, err := os.Open("testdata/topics.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		parts := strings.Split(lines.Text(), "\t")
		if len(parts) != 4 {
			t.Fatalf("line %q", lines.Text())
		}
		for i := range parts {
			parts[i] = plain(parts[i])
		}
		all = append(all, [4]string(parts))
	}
	if lines.Err() != nil || len(all) < 200 {
		t.Fatalf("%d answers, %v", len(all), lines.Err())
	}
	return all
}

// plain replaces %XXXX, UTF-16 units.
func plain(s string) string {
	var units []uint16
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			units = append(units, uint16(s[i]))
			continue
		}
		n, err := strconv.ParseUint(s[i+1:i+5], 16, 16)
		if err != nil {
			panic(err)
		}
		units = append(units, uint16(n))
		i += 4
	}
	return string(utf16.Decode(units))
}

// What is refused here though Java takes it. Everything else is as Java says.
var refusedHere = []string{`[a-z&&[^b]]+`, `(a*)+`}

// The topic is the one that Java makes, for every expression that is taken; what Java refuses is
// refused.
func TestTopicsAreJavas(t *testing.T) {
	t.Parallel()
	for _, a := range answers(t) {
		pattern, replace, value, want := a[0], a[1], a[2], a[3]
		topics, regexFault, replaceFault := newTopics(pattern, replace)
		if want == "!" || slices.Contains(refusedHere, pattern) {
			if regexFault == nil && replaceFault == nil {
				t.Errorf("%q, %q: it is taken", pattern, replace)
			}
			continue
		}
		if replaceFault != nil && regexFault == nil && !topics.matches(pattern, value) {
			continue // Java finds the fault when a value matches, we at the start
		}
		if regexFault != nil || replaceFault != nil {
			t.Errorf("%q, %q: %v, %v; Java takes it", pattern, replace, regexFault, replaceFault)
			continue
		}
		for range 2 { // once made, once remembered
			budget := event.NewBudget(len(value))
			if got, err := topics.append([]byte("="), []byte(value), &budget); string(got) != want || err != nil {
				t.Errorf("%q, %q of %q is %q, %v, Java's %q", pattern, replace, value, got, err, want)
			}
		}
	}
}

// matches says whether Java would have come to the replacement.
func (*topics) matches(pattern, value string) bool {
	re, err := compileRegex(pattern)
	return err == nil && regexp.MustCompile(`\A(?:`+re.String()+`)\z`).MatchString(value)
}

// What was made of values is kept, and not of all that there ever were.
func TestCacheForgets(t *testing.T) {
	t.Parallel()
	var c cache[int]
	for i := range 3 * maxCached / entryBytes {
		text := []byte("a-" + strconv.Itoa(i))
		c.put(text, i, 0)
		if got, known := c.get(text); !known || got != i {
			t.Fatalf("%s is %d, %t", text, got, known)
		}
		c.put(text, i, 0) // two lanes made it
	}
	if n := len(c.known); n > maxCached/entryBytes || c.bytes > maxCached {
		t.Errorf("%d values of %d bytes are kept", n, c.bytes)
	}
	long := make([]byte, maxEntry)
	c.put(long, 1, 0)
	if _, known := c.get(long); known {
		t.Error("a long text is kept")
	}
}
