// Package debezium has the relay make records of the rows of test/debezium/cases, as sink.compat
// says, and compares them with those that the real Debezium has made (testdata; test/long/debezium
// makes them again).
package debezium

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }
