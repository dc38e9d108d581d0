// Names: the application_name by which a relay is known, tables and identifiers quoted for SQL, and
// lists and sizes for people.

package source

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/cdc-relay/cdc-relay/internal/decode"
)

const (
	ApplicationPrefix = "cdc-relay/"
	nameLimit         = 63 // NAMEDATALEN - 1
)

// ApplicationName distinguishes a relay of this slot from any other holder. The server truncates it
// to nameLimit bytes, and comparisons with its views must use the truncated name.
func (c *Config) ApplicationName() string {
	name := ApplicationPrefix + c.Slot
	return name[:min(len(name), nameLimit)]
}

// TableNames lists the configured tables for people.
func (c *Config) TableNames() string {
	names := make([]string, len(c.Tables))
	for i, t := range c.Tables {
		names[i] = t.String()
	}
	return strings.Join(names, ", ")
}

// QuotedTables returns the configured tables as QuoteTable writes them, in the configured order.
func (c *Config) QuotedTables() []string {
	names := make([]string, len(c.Tables))
	for i, t := range c.Tables {
		names[i] = QuoteTable(t)
	}
	return names
}

// Relayed are the log fields for what is relayed.
func (c *Config) Relayed() []zap.Field {
	fields := []zap.Field{zap.String("tables", c.TableNames())}
	if c.Messages.Prefix != "" {
		fields = append(fields, zap.String("message_prefix", c.Messages.Prefix))
	}
	return fields
}

// QuoteTable returns a table's name as SQL, with its schema, both always in double quotes.
func QuoteTable(t decode.Table) string { return pgx.Identifier{t.Schema, t.Name}.Sanitize() }

// GrantDelete is the SQL of the rights that retention needs on a table. SELECT ... FOR UPDATE,
// which leaves out rows that somebody has locked, takes UPDATE of a column.
func GrantDelete(t decode.Table, role string) string {
	return fmt.Sprintf("GRANT DELETE, UPDATE (%s) ON %s TO %s", QuoteName(t.Mapping.ID.Any[0]), QuoteTable(t), role)
}

// QuoteName returns a name as an SQL identifier, always in double quotes.
func QuoteName(name string) string { return pgx.Identifier{name}.Sanitize() }

// QuoteText returns s as an SQL string literal, for a server with standard_conforming_strings on.
func QuoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// ShellText returns s as one word of a POSIX shell, in quotes if it must be.
func ShellText(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.@:/-") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// BytesText writes n bytes as a whole number of B, KiB, MiB or GiB for people, rounded down; below
// 10 of a unit it uses the next smaller one.
func BytesText(n uint64) string {
	const unit = 1024
	for _, name := range []string{"B", "KiB", "MiB"} {
		if n < unit*10 {
			return fmt.Sprintf("%d %s", n, name)
		}
		n /= unit
	}
	return fmt.Sprintf("%d GiB", n)
}
