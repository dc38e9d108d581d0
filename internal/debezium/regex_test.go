package debezium

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What is refused is quoted, so that whoever reads the line knows what to write otherwise.
func TestRegexRefusesByName(t *testing.T) {
	t.Parallel()
	for _, refused := range []string{
		`(?=a)a`, `(?!a)b`, `(?<=a)b`, `(?<!a)b`, `(?>a)b`, `(?P<n>a)`, `(?s).`, `(?m)^a`, `(?iu)a`, `(?-i)a`, `(?`,
		`*+`, `++b`, `{2}+`, `?+`, `{`, `{,3}`,
		`\1`, `\k<n>`, `\Z`, `\Ga`, `\R`, `\X`, `\b{g}`, `\N{DIGIT ONE}`, `\p{Lu}`, `\Qa\E`, `\x41`, `\u0041`, `\h`, `\q`, `\`,
		`$b`,
	} {
		if re, err := compileRegex(`(?<n>a)` + refused); err == nil || !strings.Contains(err.Error(), "has "+refused+",") {
			t.Errorf("%q gives %v, %v", refused, re, err)
		}
	}
	for _, refused := range []string{`[a&&b]`, `[a[bc]]`, `[\d-z]`, `[a-\d]`, `[\h]`, `[a`, `a{1001}`, `(a`, `a)`, `[b-a]`, `a**`, `*a`, `[\t-\s]`, `(a*)+`, `(a|\b)*`, `(\b)+`, `(\B|a)*`, `(^|a)+`} {
		if re, err := compileRegex(refused); err == nil {
			t.Errorf("%q gives %v", refused, re)
		}
	}
}

func TestRegexSpacesInAClass(t *testing.T) {
	t.Parallel()
	for _, class := range []string{`[\s]`, `[a-z\s]`, `[\s-]`, `[-\s]`, `[a-z-\s]`, `[\]\s]`} {
		re, err := compileRegex(class + "+")
		if err != nil || re.FindString("7 \t\n\v\f\r7") != " \t\n\v\f\r" {
			t.Errorf("%s: %v, %v", class, re, err)
		}
	}
}

// FuzzJavaRegex: a pattern is refused or compiles, and never panics; one without special characters
// means itself.
func FuzzJavaRegex(f *testing.F) {
	for _, p := range []string{`(?<a>.*)`, `[a-z\d]+`, `\Qx\E`, `a{2,3}?`, `(?i:.)|[\s]`, `[^\]]`, `\p{Lu}`, `\`, `[`, `(?`, `\u00`, "\xff"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		re, err := compileRegex(pattern)
		if err == nil && strings.IndexFunc(pattern, func(r rune) bool { return !strings.ContainsRune("abcXYZ019_- /:@äß", r) }) < 0 {
			if m := re.FindString("." + pattern + "."); m != pattern {
				t.Fatalf("%q matches %q", pattern, m)
			}
		}
	})
}

// A literal is replaced by itself, however it is escaped, and a reference by what the group has
// matched.
func TestReplacementProperties(t *testing.T) {
	t.Parallel()
	re := regexp.MustCompile(`\A(?P<first>[a-z]*)([0-9]*)`)
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`[a-z]{0,3}[0-9]{0,3}`).Draw(t, "value")
		loc := re.FindStringSubmatchIndex(value)
		groups := re.FindStringSubmatch(value)
		var text, want strings.Builder
		for range rapid.IntRange(0, 6).Draw(t, "pieces") {
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				s := rapid.String().Draw(t, "literal")
				text.WriteString(strings.NewReplacer(`\`, `\\`, `$`, `\$`).Replace(s))
				want.WriteString(s)
			case 1:
				text.WriteString("${first}")
				want.WriteString(groups[1])
			case 2:
				text.WriteString("$2") // and any digit behind it: there is no group 20
				want.WriteString(groups[2])
			case 3:
				// so that no digit comes behind it, which would belong to the reference where there
				// is such a group
				text.WriteString("$0|")
				want.WriteString(groups[0] + "|")
			default:
				c := rapid.ByteRange('!', '~').Draw(t, "escaped")
				text.WriteString(`\` + string(c))
				want.WriteByte(c)
			}
		}
		template, err := javaTemplate(text.String(), re)
		if err != nil {
			t.Fatalf("%q: %v", text.String(), err)
		}
		if got := string(re.ExpandString(nil, template, value, loc)); got != want.String() {
			t.Fatalf("%q for %q gives %q, want %q", text.String(), value, got, want.String())
		}
	})
}
