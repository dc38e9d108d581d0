// How a file is read into properties: that of a connector, of its worker or of Debezium Server.
// Forms that the importer does not read are refused with the form to give instead.

package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/magiconair/properties"

	"github.com/cdc-relay/cdc-relay/internal/config/setting"
	"github.com/cdc-relay/cdc-relay/internal/debezium"
	"github.com/cdc-relay/cdc-relay/internal/lazy"
)

// Input is one file: the name that messages show, and its content.
type Input struct {
	Name    string
	Content []byte
}

// pair is one setting of a file: its name and its text.
type pair struct{ name, text string }

// running ends the errors about files that may hold a connector in another form, such as a script.
const running = "; Connect gives that of a running connector: curl http://CONNECT:8083/connectors/NAME"

// The errors for forms that are not read say what to give instead.
var (
	errYAML = errors.New("is YAML other than one KafkaConnector of Strimzi, and import does not read it; give application.properties (with the names of application.yaml joined by dots), " +
		"or the connector's configuration as JSON or .properties" + running)
	errEnvironment = errors.New("is an environment, which import does not read; write each DEBEZIUM_ variable into application.properties under the name of its property " +
		"(DEBEZIUM_SOURCE_DATABASE_HOSTNAME is debezium.source.database.hostname). References such as ${DB_PASSWORD} are kept as they are")
)

var (
	byteOrderMark = []byte("\xef\xbb\xbf") // which editors on Windows put before a text

	// yamlLine begins a line of a resource of Kubernetes, of a compose file or of application.yaml
	yamlLine  = lazy.Regexp(`(?m)^(apiVersion|kind|services|debezium):`)
	shellLine = lazy.Regexp(`^\s*(export\s+)?[A-Z_][A-Z0-9_]*=`)
)

// readInput reads a connector's file or Debezium Server's. It tells the form by the content, and by
// the file's name only where the content leaves it open.
func readInput(f Input) (profile string, pairs []pair, err error) {
	content := bytes.TrimPrefix(f.Content, byteOrderMark)
	ext := strings.ToLower(path.Ext(f.Name))
	trimmed := bytes.TrimSpace(content)
	switch {
	case bytes.ContainsRune(content, 0) || !utf8.Valid(content):
		return "", nil, errors.New("is not text in UTF-8")
	case len(trimmed) == 0:
		return "", nil, errors.New("is empty")
	case trimmed[0] == '{' || trimmed[0] == '[':
		pairs, err = readJSON(trimmed)
		return debezium.Connect, pairs, err
	case ext == ".yaml" || ext == ".yml" || ext != ".properties" && yamlLine().Match(content):
		pairs, err = readStrimzi(Input{f.Name, content})
		return debezium.Connect, pairs, err
	case ext != ".properties" && shellLine().Match(trimmed):
		return "", nil, errEnvironment
	}
	return readProperties(content)
}

// readJSON reads a connector of Connect: its configuration alone, or as config next to name, as the
// REST API takes and gives it. The names come in alphabetical order.
func readJSON(content []byte) (pairs []pair, err error) {
	members, err := object(content)
	if config := members["config"]; len(config) > 0 && config[0] == '{' {
		for key := range members {
			if !slices.Contains([]string{"name", "config", "tasks", "type", "initial_state"}, key) {
				return nil, fmt.Errorf("has %q beside config; want name and config", key)
			}
		}
		members, err = object(config)
	}
	switch {
	case err != nil:
		return nil, err
	case members["apiVersion"] != nil, members["services"] != nil:
		return nil, errYAML
	case members["connector.class"] == nil:
		return nil, errors.New("has no connector.class: it is not the configuration of one connector, as GET /connectors/NAME gives it")
	}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		text := string(members[key])
		switch text[0] {
		case 'n': // null means that it is not set
			continue
		case '{', '[':
			return nil, fmt.Errorf("%s is no single value", key)
		case '"':
			if err := json.Unmarshal(members[key], &text); err != nil {
				return nil, notJSON(err)
			}
		}
		pairs = append(pairs, pair{key, text})
	}
	return pairs, nil
}

// readStrimzi reads a KafkaConnector, a resource of Strimzi's operator for Kubernetes.
func readStrimzi(f Input) (pairs []pair, err error) {
	document, faults := setting.Parse(f.Name, f.Content)
	spec := member(document, "spec")
	config := member(spec, "config")
	switch {
	case document != nil && (member(document, "kind").Text != "KafkaConnector" || config.Kind != setting.Mapping):
		return nil, errYAML
	case len(faults) > 0:
		return nil, fmt.Errorf("line %d: %s", faults[0].Where.Line, faults[0].What)
	}
	pairs = append(pairs, pair{"connector.class", member(spec, "class").Text})
	for _, e := range config.Entries {
		switch e.Value.Kind {
		case setting.Null:
		case setting.Scalar:
			pairs = append(pairs, pair{e.Name, e.Value.Text})
		default:
			return nil, fmt.Errorf("%s is no single value", e.Name)
		}
	}
	return pairs, nil
}

// member returns the value of a name in a mapping; an empty one when there is none.
func member(mapping *setting.Node, name string) *setting.Node {
	if mapping != nil {
		if i := slices.IndexFunc(mapping.Entries, func(e setting.Entry) bool { return e.Name == name }); i >= 0 {
			return mapping.Entries[i].Value
		}
	}
	return &setting.Node{}
}

// object reads one JSON object, and leaves its members undecoded.
func object(content []byte) (members map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(content, &members); err != nil {
		return nil, notJSON(err)
	}
	return members, nil
}

// notJSON makes an error of encoding/json fit to be shown. It keeps the place and drops the
// character that encoding/json quotes, which may be part of a password.
func notJSON(err error) error {
	var at *json.SyntaxError
	if errors.As(err, &at) {
		return fmt.Errorf("is not JSON: a syntax error near byte %d; JSON has no comments, and needs a comma between two members", at.Offset)
	}
	return errors.New("is not the JSON of one connector")
}

// readProperties reads a .properties file. It is Debezium Server's when any of its names begins
// with debezium., and otherwise that of a connector of Connect standalone. Java reads the former as
// UTF-8 and the latter as Latin 1.
func readProperties(content []byte) (profile string, pairs []pair, err error) {
	pairs, err = loadProperties(content, properties.UTF8)
	switch {
	case err != nil:
		return "", nil, err
	case slices.ContainsFunc(pairs, func(p pair) bool { return strings.HasPrefix(p.name, "debezium.") }):
		for _, p := range pairs {
			if strings.HasPrefix(p.name, "%") {
				return "", nil, fmt.Errorf("has %s, of a profile of Quarkus; give a file with the settings that count, without the profile", p.name)
			}
		}
		return debezium.Server, pairs, nil
	case has(pairs, "connector.class"):
		pairs, err = loadProperties(content, properties.ISO_8859_1)
		return debezium.Connect, pairs, err
	case has(pairs, "bootstrap.servers"):
		return "", nil, errors.New("is the configuration of a Connect worker; give it with --worker-config beside the connector's file")
	}
	return "", nil, errors.New("has neither connector.class nor a name that begins with debezium.: it configures no Debezium" + running)
}

// readWorker reads the .properties file of a Connect worker.
func readWorker(f Input) ([]pair, error) {
	pairs, err := loadProperties(f.Content, properties.ISO_8859_1)
	if err == nil && !has(pairs, "bootstrap.servers") && !has(pairs, "key.converter") {
		err = errors.New("has neither bootstrap.servers nor key.converter: it configures no worker. " +
			"A container makes a .properties file of its environment: give that, such as config/connect-distributed.properties of Debezium's image")
	}
	return pairs, err
}

// loadProperties reads a .properties file and leaves references in its values as they are. Its
// error quotes nothing of the file, which may have passwords in it.
func loadProperties(content []byte, encoding properties.Encoding) (pairs []pair, err error) {
	loader := properties.Loader{Encoding: encoding, DisableExpansion: true}
	loaded, err := loader.LoadBytes(bytes.TrimPrefix(content, byteOrderMark))
	if err != nil {
		// the library quotes the line, which may hold a password
		return nil, errors.New("is not a .properties file")
	}
	for _, key := range loaded.Keys() {
		text, _ := loaded.Get(key)
		pairs = append(pairs, pair{key, text})
	}
	return pairs, nil
}

// has reports whether a property is set.
func has(pairs []pair, name string) bool {
	return slices.ContainsFunc(pairs, func(p pair) bool { return p.name == name })
}

// value is a property's text as the relay's configuration has it: a dollar sign is doubled, and
// ${REF} is a reference that the relay resolves when it starts.
type value string

var (
	dollars    = lazy.Regexp(`\$\$|\$\{[^}]*\}`)
	references = lazy.Regexp(`^(\$\{[^}]*\})*$`)
	fallbacks  = lazy.Regexp(`:-[^}]+\}`)
)

// literal makes a value of plain text.
func literal(text string) value { return value(strings.ReplaceAll(text, "$", "$$")) }

// plain returns the text of a value. known is false when the value has a reference, because only
// the running relay could know it.
func (v value) plain() (text string, known bool) {
	known = true
	text = dollars().ReplaceAllStringFunc(string(v), func(s string) string {
		known = known && s == "$$"
		return "$"
	})
	return text, known
}

// onlyReferences reports whether a value has no text of its own beside its references and no
// default in them, so that nothing secret stands in the file.
func (v value) onlyReferences() bool {
	return references().MatchString(string(v)) && !fallbacks().MatchString(string(v))
}

// placeholder matches a variable that a script or envsubst fills in before Connect has the file. To
// Connect itself it would be text.
var placeholder = lazy.Regexp(`\$\$\{([A-Z_][A-Z0-9_]*)\}`)

var (
	quarkusDollar = lazy.Regexp(`\\\$|\$\$|\$\{[^{}]*\}|\$\{?`)
	variable      = lazy.Regexp(`^[A-Z_][A-Z0-9_]*$`)
)

// quarkus reads a value of Debezium Server. ${NAME} and ${NAME:default} are variables of the
// environment. $$ and \$ are a dollar sign; a $ before anything but { stands for itself.
func quarkus(text string) (value, error) {
	var fault error
	written := quarkusDollar().ReplaceAllStringFunc(text, func(s string) string {
		if s == "${" {
			fault = errors.New("has a ${ without its }, or with another reference inside; write what it stands for")
		}
		if !strings.HasSuffix(s, "}") {
			return "$$"
		}
		name, fallback, given := strings.Cut(s[2:len(s)-1], ":")
		if !variable().MatchString(name) {
			fault = fmt.Errorf("${%s} is a reference to another property; write what it stands for. What is meant for Debezium itself is written $${%s} there", name, name)
		}
		if given {
			name += ":-" + fallback
		}
		return "${" + name + "}"
	})
	return value(written), fault
}

// providerReference matches what Connect's ConfigTransformer takes for a reference. What does not
// fit the pattern stays text.
var providerReference = lazy.Regexp(`\$\$\{([^}:]*):(?:([^}]*):)?([^}:]*)\}|\$\$|\$\{[^}]*\}`)

// usualProviders are the configuration providers that come with Kafka, by the names that files
// usually give them.
var usualProviders = map[string]string{
	"file": "FileConfigProvider", "env": "EnvVarConfigProvider", "directory": "DirectoryConfigProvider", "dir": "DirectoryConfigProvider",
}

// providers turns references to Connect's configuration providers, ${provider:path:key}, into the
// relay's references.
func providers(v value) (value, error) {
	var fault error
	written := providerReference().ReplaceAllStringFunc(string(v), func(s string) string {
		if !strings.HasPrefix(s, "$${") {
			return s
		}
		m := providerReference().FindStringSubmatch(s)
		provider, file, key := m[1], strings.ReplaceAll(m[2], "$$", "$"), strings.ReplaceAll(m[3], "$$", "$")
		switch usualProviders[provider] {
		case "FileConfigProvider":
			key = "file:" + file + ":" + key
		case "DirectoryConfigProvider":
			key = "file:" + strings.TrimSuffix(file, "/") + "/" + key
		case "EnvVarConfigProvider":
			if !variable().MatchString(strings.ToUpper(key)) {
				fault = fmt.Errorf("${%s:%s} names no variable", provider, key)
			}
		default:
			fault = fmt.Errorf("is a reference to the configuration provider %q, which does not exist here; file, directory and env do: put the value into a file and write ${file:/path}", provider)
		}
		if strings.ContainsAny(key, `'"\`) {
			fault = errors.New("is a reference to a name with a quote or a backslash; give the file another name")
		}
		return "${" + key + "}"
	})
	return value(written), fault
}
