package setting

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReferences(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "slot")
	if err := os.WriteFile(file, []byte("from_file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Kafka Connect's way to keep several secrets in one file.
	several := filepath.Join(dir, "several.properties")
	if err := os.WriteFile(several, []byte("# secrets\nuser = relay\npassword=p${NAME}=\\u0041\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	colon := filepath.Join(dir, "with:colon")
	if err := os.WriteFile(colon, []byte("whole\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"NAME": "shop", "EMPTY": "", "DOLLAR": "$${NAME}"}
	for text, want := range map[string]string{
		"plain":                "plain",
		"a_${NAME}_b":          "a_shop_b",
		"${NAME}${NAME}":       "shopshop",
		"${MISSING:-d}":        "d",
		"${EMPTY:-d}":          "d",
		"${EMPTY}":             "",
		"${MISSING:-}":         "",
		"$${NAME}":             "${NAME}",
		"a$b $ $$":             "a$b $ $",
		"${file:" + file + "}": "from_file",
		"${DOLLAR}":            "$${NAME}",

		"${file:" + several + ":user}":     "relay",
		"${file:" + several + ":password}": "p${NAME}=A",
		"${file:" + colon + "}":            "whole",
	} {
		if got, err := Expand(text, env); err != nil || got != want {
			t.Errorf("Expand(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"${MISSING}":       "MISSING is not set",
		"${NAME":           "without its }",
		"${}":              "there must be VAR",
		"${2X}":            "there must be VAR",
		"${NAME-d}":        "there must be VAR",
		"${file:/no/such}": "no such file",

		"${file:/no/such:key}":               "no such file",
		"${file:" + several + ":other}":      "has no key other",
		"${file:" + dir + "/several:x/user}": "no such file",
	} {
		if got, err := Expand(text, env); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Expand(%q) = %q, %v; want an error with %q", text, got, err, want)
		}
	}
}
