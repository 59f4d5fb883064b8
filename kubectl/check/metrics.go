package check

import (
	"fmt"
	"io"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are those of a controller, by name.
type Metrics map[string]*dto.MetricFamily

// ParseMetrics parses the metrics of a controller. leads reports whether it leads.
func ParseMetrics(text io.Reader) (m Metrics, leads bool, err error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	m, err = parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, false, fmt.Errorf("the metrics of the controller: %w", err)
	}
	for _, one := range m["ovn_multinet_controller_leader"].GetMetric() {
		leads = one.GetGauge().GetValue() == 1
	}
	return m, leads, nil
}

// Label returns the value of a metric's label.
func Label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// refused returns how many objects of each kind are refused.
func (m Metrics) refused() map[string]int {
	kinds := map[string]int{}
	for _, one := range m["ovn_multinet_controller_refused_objects"].GetMetric() {
		kinds[Label(one, "kind")] += int(one.GetGauge().GetValue())
	}
	return kinds
}
