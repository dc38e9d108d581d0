// The conditions of the contest: the sentences below the README's table, made of the reports.
package main

import (
	"regexp"
	"strings"
)

var (
	reportServers = regexp.MustCompile(`(?m)^- (PostgreSQL .*)$`)
	reportMachine = regexp.MustCompile(`(?m)^- (.* cores, .* of memory)$`)
	reportCommit  = regexp.MustCompile(`(?m)^- commit (\S+)$`)
	reportDate    = regexp.MustCompile(`(?m)^- (\d{4}-\d\d-\d\d) `)
)

// conditions say where, when and of which commit the reports were measured. They are "" unless all
// reports are of one machine and one commit: then the table compares what cannot be compared.
func conditions(reports []string) string {
	var machine, commit, date string
	var servers []string
	for _, text := range reports {
		if text == "" {
			continue
		}
		m, c := group(reportMachine, text), group(reportCommit, text)
		if servers != nil && (m != machine || c != commit) {
			return ""
		}
		machine, commit, date = m, c, group(reportDate, text)
		for _, name := range strings.Split(group(reportServers, text), ", ") {
			if !strings.Contains(strings.Join(servers, ", "), name) {
				servers = append(servers, name)
			}
		}
	}
	if servers == nil {
		return ""
	}
	return "\n" + wrap("Conditions: one machine for everything ("+machine+"): "+strings.Join(servers, ", ")+". "+
		"Medians of up to five runs in turns; Debezium with its defaults ran once, and so did the last row. "+
		"Commit "+commit+", "+date+".", 118)
}

func group(pattern *regexp.Regexp, text string) string {
	found := pattern.FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return found[1]
}

// wrap breaks a text into lines of so many bytes at most, where it has blanks.
func wrap(text string, width int) string {
	var b strings.Builder
	length := 0
	for _, word := range strings.Fields(text) {
		switch {
		case length == 0:
		case length+1+len(word) > width:
			b.WriteByte('\n')
			length = 0
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += len(word)
	}
	return b.String() + "\n"
}
