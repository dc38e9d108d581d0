// A text that attacks a terminal: whatever prints texts of others must print this one harmlessly.

package sentinel

import (
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// TerminalAttack sets the title, colours in both encodings of CSI, reorders the text (bidi), hides
// the beginning of the line, and begins a line of its own.
const TerminalAttack = "x\x1b]0;pwned\a\x1b[31m\u009b2J\x9b\u202egnp.exe\u2066\u200b\u2028\x7f\x00\rhidden\nforged"

// FillWithAttack sets every text below v, which is a pointer, to TerminalAttack, also in fields
// that will be added, and everything else to something: what is absent is not printed.
func FillWithAttack(v any) { fillValue(reflect.ValueOf(v).Elem()) }

func fillValue(v reflect.Value) {
	switch {
	case !v.CanSet():
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Now().Add(-time.Hour)))
	case v.Kind() == reflect.String:
		v.SetString(TerminalAttack)
	case v.CanInt():
		v.SetInt(1)
	case v.CanUint():
		v.SetUint(1)
	case v.CanFloat():
		v.SetFloat(1)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillValue(v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillValue(v.Index(0))
	case v.Kind() == reflect.Array:
		for i := range v.Len() {
			fillValue(v.Index(i))
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			fillValue(v.Field(i))
		}
	}
}

// CheckPrinted fails when a printed text has a character that a terminal obeys, or has nothing of
// the attack, which then was not made.
func CheckPrinted(t *testing.T, name, printed string) {
	t.Helper()
	if !strings.Contains(printed, "pwned") {
		t.Errorf("%s: the fields are not printed: %q", name, printed)
	}
	at := strings.IndexFunc(printed, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
	if at >= 0 || !utf8.ValidString(printed) {
		t.Errorf("%s: a terminal would obey this: %q", name, printed)
	}
}

// CheckPrintedLines is CheckPrinted for what prints each text on one line: none can forge a line.
func CheckPrintedLines(t *testing.T, name, printed string) {
	t.Helper()
	CheckPrinted(t, name, printed)
	if strings.Contains(printed, "\nforged") {
		t.Errorf("%s: a text begins a line of its own: %q", name, printed)
	}
}
