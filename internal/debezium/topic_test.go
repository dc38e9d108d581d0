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

	"github.com/cdc-relay/cdc-relay/internal/debezium/regex"
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
			if got := string(topics.append([]byte("="), []byte(value))); got != want {
				t.Errorf("%q, %q of %q is %q, Java's %q", pattern, replace, value, got, want)
			}
		}
	}
}

// matches says whether Java would have come to the replacement.
func (*topics) matches(pattern, value string) bool {
	re, err := regex.Compile(pattern)
	return err == nil && regexp.MustCompile(`\A(?:`+re.String()+`)\z`).MatchString(value)
}

// What was made of values is kept, and not of all that there ever were.
func TestTopicsForget(t *testing.T) {
	t.Parallel()
	topics, _, _ := newTopics(`([a-z]+)-([0-9]+)`, "$1.$2")
	for i := range 3 * maxKnown {
		topics.append(nil, []byte("a-"+strconv.Itoa(i)))
	}
	if n := len(topics.known); n > maxKnown {
		t.Errorf("%d topics are kept, want %d at most", n, maxKnown)
	}
	if got := string(topics.append(nil, []byte("a-1"))); got != "a.1" {
		t.Errorf("got %q", got)
	}
}
