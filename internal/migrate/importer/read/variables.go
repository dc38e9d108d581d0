// Which variables of an environment are properties of Debezium Server.

package read

import (
	"regexp"
	"slices"
	"strings"
)

var notOfName = regexp.MustCompile(`[^A-Z0-9]`)

// variablePrefixes begin the variables that are properties. Others begin with DEBEZIUM_ too: the
// image has DEBEZIUM_VERSION, its start script reads DEBEZIUM_OPTS, and Kubernetes puts
// DEBEZIUM_SERVICE_HOST, DEBEZIUM_PORT and more into each container next to a service of this name.
var variablePrefixes = []string{
	"DEBEZIUM_SOURCE_", "DEBEZIUM_SINK_", "DEBEZIUM_FORMAT_", "DEBEZIUM_TRANSFORMS", "DEBEZIUM_PREDICATES", "DEBEZIUM_API_", "QUARKUS_",
}

// IsPropertyVariable is true of a variable that is a property of Debezium Server's.
func IsPropertyVariable(name string) bool {
	upper := VariableOf(name)
	return slices.ContainsFunc(variablePrefixes, func(prefix string) bool { return strings.HasPrefix(upper, prefix) })
}

// VariableOf is a property's name as a variable's.
func VariableOf(name string) string { return notOfName.ReplaceAllString(strings.ToUpper(name), "_") }
