package importer

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/read"
	"github.com/cdc-relay/cdc-relay/internal/migrate/importer/rules"
)

// What the driver reads out of source.url is what Debezium was given, blanks too.
func TestTheDriverReadsTheAddress(t *testing.T) {
	b, _ := build(t, []read.Input{{Name: "c.properties", Content: []byte("connector.class=" + rules.PostgresClass + "\nplugin.name=pgoutput\ndatabase.hostname=db\ndatabase.user=the user\ndatabase.dbname=my db\n" +
		"database.initial.statements=SET application_name = 'my app + one'; SET statement_timeout TO '30 s'; SET search_path TO 'a/b&c=%20'\n")}}, nil)
	var address string
	for _, l := range b.Doc.Lines {
		if strings.Join(l.Path, ".") == rules.SourceURL {
			address = strings.Trim(l.Scalar, `"`)
		}
	}
	c, err := pgconn.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	for what, is := range map[string][2]string{
		"user":              {c.User, "the user"},
		"dbname":            {c.Database, "my db"},
		"application_name":  {c.RuntimeParams["application_name"], "my app + one"},
		"statement_timeout": {c.RuntimeParams["statement_timeout"], "30 s"},
		"search_path":       {c.RuntimeParams["search_path"], "a/b&c=%20"},
	} {
		if is[0] != is[1] {
			t.Errorf("%s is read as %q, want %q, from %s", what, is[0], is[1], address)
		}
	}
}
