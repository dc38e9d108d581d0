// Which converter makes the bytes of keys, values and headers: in Connect a class, in Debezium
// Server a format.

package debezium

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The classes that are taken.
const (
	classString = "org.apache.kafka.connect.storage.StringConverter"
	classJSON   = "org.apache.kafka.connect.json.JsonConverter"
	classBytes  = "org.apache.kafka.connect.converters.ByteArrayConverter"
	classBinary = "io.debezium.converters.BinaryDataConverter"
	classLegacy = "io.debezium.converters.ByteArrayConverter"
	classSimple = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
)

// formats are the formats of Debezium Server that the relay can write, and the converter's class
// behind each.
var formats = map[string]string{"json": classJSON, "jsonbytearray": classJSON, "simplestring": classString, "binary": classBinary}

// roles are the parts of a record that a converter converts.
var roles = []string{"key", "value", "header"}

// settings are the options that a converter takes itself. Those without a use here change no byte.
var settings = []string{
	"schemas.enable", "schemas.cache.size", "decimal.format", "replace.null.with.default", "converter.encoding", "converter.type",
	"delegate.converter.type", "delegate.converter.type.schemas.enable", "delegate.converter.type.schemas.cache.size",
	"delegate.converter.type.decimal.format", "delegate.converter.type.replace.null.with.default", "delegate.converter.type.converter.encoding",
}

// converterOptions are the names of all options of converters.
func converterOptions(profile string) []string {
	var names []string
	for _, role := range roles {
		if profile == Connect {
			names = append(names, role+".converter")
			for _, s := range settings {
				names = append(names, role+".converter."+s)
			}
			continue
		}
		names = append(names, "format."+role, "format."+role+".class")
		for _, s := range settings {
			names = append(names, "format."+role+"."+s)
		}
	}
	if profile == Server {
		for _, s := range settings {
			names = append(names, "format."+s) // of all three
		}
	}
	return names
}

// converters makes the three.
func (p *parsing) converters() {
	p.o.keys, p.o.values, p.o.headers = p.converter("key"), p.converter("value"), p.converter("header")
}

func (p *parsing) converter(role string) Converter {
	c := &chosen{p: p, role: role}
	if p.o.profile == Connect {
		c.option, c.prefixes = role+".converter", []string{role + ".converter."}
		c.class = p.value(c.option, map[string]string{"key": classJSON, "value": classJSON, "header": classSimple}[role])
	} else {
		c.format()
	}
	return c.makeConverter("")
}

// chosen is a converter that the options choose.
type chosen struct {
	p        *parsing
	role     string
	option   string   // that names the class or format
	prefixes []string // of its settings, in the order in which they are asked
	class    string   // "": a fault was reported
}

// format finds the class behind a format of Debezium Server.
func (c *chosen) format() {
	c.option, c.prefixes = "format."+c.role, []string{"format." + c.role + ".", "format."}
	format := strings.ToLower(strings.TrimSpace(c.p.value(c.option, "json")))
	class, given := c.p.given[c.option+".class"]
	switch {
	case format == "clientprovided" && !given:
		c.p.fault(c.option, "is clientprovided, which wants "+c.option+".class")
	case format == "clientprovided":
		c.class, c.option = class, c.option+".class"
	case c.role == "header" && format != "json" && format != "jsonbytearray":
		c.p.fault(c.option, fmt.Sprintf("is %q, want json, jsonbytearray or clientprovided", format))
	case formats[format] == "":
		c.p.fault(c.option, fmt.Sprintf("is %q, which is not taken here: want json, jsonbytearray, simplestring, binary or clientprovided", format))
	case given && class != formats[format]:
		c.p.fault(c.option+".class", "is only taken with the format clientprovided")
	default:
		c.class = formats[format]
	}
	text := format == "json" || format == "simplestring"
	switch c.role {
	case "key":
		c.p.o.textKeys = text
	case "header":
		c.p.o.textHeaders = text
	}
}

// setting is the value of one of the converter's own, and the option that has it.
func (c *chosen) setting(name string) (value, option string, given bool) {
	for _, prefix := range c.prefixes {
		if value, given = c.p.given[prefix+name]; given {
			return value, prefix + name, true
		}
	}
	return "", "", false
}

// makeConverter makes the converter of the class; inner is "" or the prefix of a delegate's
// settings.
func (c *chosen) makeConverter(inner string) Converter {
	switch class := strings.TrimSpace(c.class); class {
	case "":
	case classString:
		if encoding, option, given := c.setting(inner + "converter.encoding"); given && !slices.Contains([]string{"utf-8", "utf8"}, strings.ToLower(strings.TrimSpace(encoding))) {
			c.p.fault(option, "is "+encoding+", only UTF-8 is taken here")
		}
		return StringConverter{}
	case classJSON:
		return c.json(inner)
	case classSimple:
		if c.role == "header" {
			return SimpleHeaderConverter{}
		}
		c.p.fault(c.option, "is SimpleHeaderConverter, which is for headers")
	case classBytes:
		return ByteArrayConverter{}
	case classBinary, classLegacy:
		if c.role == "header" || inner != "" {
			c.p.fault(c.option, "is "+class+", which is for keys and values")
			return nil
		}
		return BinaryDataConverter{Delegate: c.delegate(), Legacy: class == classLegacy}
	default:
		c.p.fault(c.option, fmt.Sprintf("is %q, which is not taken here: want one of %s", class, strings.Join(c.takes(), ", ")))
	}
	return nil
}

func (c *chosen) takes() []string {
	if c.role == "header" {
		return []string{classSimple, classJSON, classString, classBytes}
	}
	return []string{classString, classJSON, classBytes, classBinary}
}

const delegateType = "delegate.converter.type"

// delegate is the converter of values that are not bytes; nil: there is none.
func (c *chosen) delegate() Converter {
	class, option, given := c.setting(delegateType)
	if !given {
		return nil
	}
	inner := *c
	inner.class, inner.option = class, option
	if !slices.Contains([]string{classString, classJSON}, strings.TrimSpace(class)) {
		c.p.fault(option, fmt.Sprintf("is %q, which is not taken here: want one of %s, %s", class, classString, classJSON))
		return nil
	}
	return inner.makeConverter(delegateType + ".")
}

func (c *chosen) json(inner string) Converter {
	j := JSONConverter{Schemas: true, ReplaceNulls: true}
	for _, s := range []struct {
		name string
		set  func(value string) error
	}{
		{"schemas.enable", setTruth(&j.Schemas)},
		{"replace.null.with.default", setTruth(&j.ReplaceNulls)},
		{"decimal.format", func(value string) error {
			switch strings.ToLower(strings.TrimSpace(value)) {
			case "base64":
			case "numeric":
				j.Numeric = true
			default:
				return errors.New("is neither BASE64 nor NUMERIC")
			}
			return nil
		}},
	} {
		if value, option, given := c.setting(inner + s.name); given {
			if err := s.set(value); err != nil {
				c.p.fault(option, err.Error())
			}
		}
	}
	return j
}

func setTruth(at *bool) func(string) error {
	return func(value string) (err error) {
		*at, err = parseTruth(value)
		return err
	}
}
