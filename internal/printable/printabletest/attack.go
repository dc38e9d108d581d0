// Package printabletest attacks what prints texts of others: it puts characters that a terminal
// obeys into every field, also into those that will be added.
package printabletest

import (
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// Attack sets the title, colours in both encodings of CSI, reorders the text (bidi), hides the
// beginning of the line, and begins a line of its own.
const Attack = "x\x1b]0;pwned\a\x1b[31m\u009b2J\x9b\u202egnp.exe\u2066\u200b\u2028\x7f\x00\rhidden\nforged"

// Fill sets every text below v, which is a pointer, to Attack, and everything else to something:
// what is absent is not printed.
func Fill(v any) { fill(reflect.ValueOf(v).Elem()) }

func fill(v reflect.Value) {
	switch {
	case !v.CanSet():
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Now().Add(-time.Hour)))
	case v.Kind() == reflect.String:
		v.SetString(Attack)
	case v.CanInt():
		v.SetInt(1)
	case v.CanUint():
		v.SetUint(1)
	case v.CanFloat():
		v.SetFloat(1)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case v.Kind() == reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	}
}

// Check fails when a printed text has a character that a terminal obeys, or has nothing of the
// attack, which then was not made.
func Check(t *testing.T, name, printed string) {
	t.Helper()
	if !strings.Contains(printed, "pwned") {
		t.Errorf("%s: the fields are not printed: %q", name, printed)
	}
	at := strings.IndexFunc(printed, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
	if at >= 0 || !utf8.ValidString(printed) {
		t.Errorf("%s: a terminal would obey this: %q", name, printed)
	}
}

// CheckLines is Check for what prints each text on one line: none can forge a line.
func CheckLines(t *testing.T, name, printed string) {
	t.Helper()
	Check(t, name, printed)
	if strings.Contains(printed, "\nforged") {
		t.Errorf("%s: a text begins a line of its own: %q", name, printed)
	}
}
