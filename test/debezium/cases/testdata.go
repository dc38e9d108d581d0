package cases

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Golden is what Debezium has made of the rows of a group.
type Golden struct {
	Debezium string   `json:"debezium"`
	Connect  string   `json:"kafka_connect,omitempty"`
	Postgres string   `json:"postgresql"`
	Broker   string   `json:"broker"`
	Stops    string   `json:"stops,omitempty"` // the words with which it has stopped
	Records  []Record `json:"records"`
}

// Write writes the file of a group: a line for each record.
func (g *Golden) Write(dir, group string) error {
	head := *g
	head.Records = nil
	text, err := json.Marshal(head)
	if err != nil {
		return fmt.Errorf("write golden records of %s: %w", group, err)
	}
	b := bytes.NewBuffer(bytes.TrimSuffix(text, []byte("null}")))
	b.WriteString("[")
	for i, r := range g.Records {
		line, err := plainJSON(r)
		if err != nil {
			return fmt.Errorf("write golden records of %s: %w", group, err)
		}
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString("\n")
		b.Write(line)
	}
	b.WriteString("\n]}\n")
	if err := os.WriteFile(filepath.Join(dir, group+".json"), b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write golden records: %w", err)
	}
	return nil
}

// Read reads the file of a group.
func Read(dir, group string) (*Golden, error) {
	text, err := os.ReadFile(filepath.Join(dir, group+".json"))
	if err != nil {
		return nil, fmt.Errorf("read golden records: %w", err)
	}
	g := new(Golden)
	if err := json.Unmarshal(text, g); err != nil {
		return nil, fmt.Errorf("read golden records of %s: %w", group, err)
	}
	return g, nil
}
