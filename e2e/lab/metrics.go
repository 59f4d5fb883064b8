package lab

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// Metrics reads what a program serves at an address of the node's network namespace, by the names with their labels.
func (n *Node) Metrics(address string) (map[string]float64, error) { return metricsIn(n.Do, address) }

// Metrics reads the metrics of a program beside NB.
func (l *Lab) Metrics(address string) (map[string]float64, error) {
	return metricsIn(l.OnCentral, address)
}

// metricsIn reads metrics in a network namespace.
func metricsIn(do func(func() error) error, address string) (map[string]float64, error) {
	var conn net.Conn
	err := do(func() (err error) {
		conn, err = net.Dial("tcp", address)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET /metrics HTTP/1.0\r\n\r\n"); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	metrics := map[string]float64{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if name == "#" {
			continue
		}
		if metrics[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("metric %q: %w", lines.Text(), err)
		}
	}
	return metrics, lines.Err()
}
