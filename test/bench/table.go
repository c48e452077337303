package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// table gathers figures by row and system.
type table struct {
	peers []system
	order []string
	unit  map[string]string
	rows  map[string]map[string][]float64
}

func newTable(peers []system) *table {
	return &table{peers: peers, unit: map[string]string{}, rows: map[string]map[string][]float64{}}
}

func (t *table) add(row, unit string, p system, v float64) {
	if t.rows[row] == nil {
		t.order = append(t.order, row)
		t.rows[row], t.unit[row] = map[string][]float64{}, unit
	}
	t.rows[row][p.name()] = append(t.rows[row][p.name()], v)
}

func (t *table) print(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(tw, "median (min–max)\tunit")
	for _, p := range t.peers {
		fmt.Fprintf(tw, "\t%s", p.name())
	}
	fmt.Fprintln(tw, "\tratio")
	for _, row := range t.order {
		fmt.Fprintf(tw, "%s\t%s", row, t.unit[row])
		var medians []float64
		for _, p := range t.peers {
			v := t.rows[row][p.name()]
			if len(v) == 0 {
				fmt.Fprint(tw, "\t–")
				continue
			}
			slices.Sort(v)
			medians = append(medians, v[len(v)/2])
			fmt.Fprintf(tw, "\t%.4g (%.3g–%.3g)", v[len(v)/2], v[0], v[len(v)-1])
		}
		ratio := "–"
		if len(medians) == 2 && medians[0] > 0 && medians[1] > 0 {
			// How many times better the first is: less time and memory, more per second.
			r := medians[1] / medians[0]
			if t.unit[row] == "/s" || t.unit[row] == "MB/s" {
				r = 1 / r
			}
			ratio = fmt.Sprintf("%.1fx", r)
		}
		fmt.Fprintf(tw, "\t%s\n", ratio)
	}
	tw.Flush()
}
