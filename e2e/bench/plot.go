package bench

import (
	"fmt"
	"math"
	"strings"
)

// A Plot is a chart with lines.
type Plot struct {
	Name, Title, X, Y string
	Lines             []Line
	Log               bool // both axes
}

// A Line is a series of points with their intervals.
type Line struct {
	Name   string
	X      []float64
	Points []Estimate
}

// The measures of a chart, in pixels.
const (
	width, height      = 640, 360
	left, right        = 70, 170
	top, bottom        = 40, 50
	innerWidth         = width - left - right
	innerHeight        = height - top - bottom
	ticks              = 5
	green, gray, black = "#0b6e4f", "#888", "#222"
)

var colours = []string{green, "#c1440e", "#3a5fcd", "#8b6914", "#7b2d8b", "#0aa2c0", "#d6336c", "#5c940d", "#495057"}

// SVG draws the chart.
func (p Plot) SVG() string {
	c := canvas{xs: p.scale(true), ys: p.scale(false)}
	c.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`, width, height)
	c.add(`<rect width="100%%" height="100%%" fill="white"/>`)
	c.text(left, 20, "start", p.Title)
	c.text(left+innerWidth/2, height-10, "middle", p.X)
	c.add(`<text transform="translate(14 %d) rotate(-90)" text-anchor="middle" fill="%s">%s</text>`, top+innerHeight/2, black, escape(p.Y))
	c.axes()
	for i, line := range p.Lines {
		c.line(i, line)
	}
	c.add("</svg>")
	return c.String()
}

// scale maps values to 0..1, over all points of the chart.
func (p Plot) scale(horizontal bool) scale {
	s := scale{log: p.Log, low: math.Inf(1), high: math.Inf(-1)}
	for _, line := range p.Lines {
		for i, e := range line.Points {
			values := []float64{e.Low, e.High}
			if horizontal {
				values = []float64{line.X[i]}
			}
			for _, v := range values {
				s.low, s.high = min(s.low, v), max(s.high, v)
			}
		}
	}
	if !s.log {
		s.low = min(0, s.low)
	}
	return s
}

type scale struct {
	low, high float64
	log       bool
}

func (s scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		v, low, high = math.Log(max(v, 1e-9)), math.Log(max(low, 1e-9)), math.Log(max(high, 1e-9))
	}
	if high <= low {
		return 0.5
	}
	return (v - low) / (high - low)
}

// tick is the value at the i-th mark.
func (s scale) tick(i int) float64 {
	part := float64(i) / ticks
	if s.log {
		return math.Exp(math.Log(max(s.low, 1e-9))*(1-part) + math.Log(max(s.high, 1e-9))*part)
	}
	return s.low + (s.high-s.low)*part
}

type canvas struct {
	strings.Builder
	xs, ys scale
}

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

func (c *canvas) x(v float64) float64 { return left + c.xs.at(v)*innerWidth }
func (c *canvas) y(v float64) float64 { return top + (1-c.ys.at(v))*innerHeight }

func (c *canvas) text(x, y float64, anchor, text string) {
	c.add(`<text x="%.0f" y="%.0f" text-anchor="%s" fill="%s">%s</text>`, x, y, anchor, black, escape(text))
}

func (c *canvas) axes() {
	for i := range ticks + 1 {
		x, y := c.xs.tick(i), c.ys.tick(i)
		c.add(`<path d="M%d %.1fH%d" stroke="%s" stroke-width="0.3"/>`, left, c.y(y), left+innerWidth, gray)
		c.text(left-6, c.y(y)+4, "end", short(y))
		c.text(c.x(x), top+innerHeight+18, "middle", short(x))
	}
	c.add(`<path d="M%d %dV%dH%d" stroke="%s" fill="none"/>`, left, top, top+innerHeight, left+innerWidth, black)
}

// line draws a line, its intervals, and its name beside the chart.
func (c *canvas) line(i int, line Line) {
	colour := colours[i%len(colours)]
	var path strings.Builder
	for j, e := range line.Points {
		x := c.x(line.X[j])
		fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(j, 1)], x, c.y(e.Median))
		c.add(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, x, c.y(e.Median), colour)
		c.add(`<path d="M%.1f %.1fV%.1f" stroke="%s"/>`, x, c.y(e.Low), c.y(e.High), colour)
	}
	c.add(`<path d="%s" stroke="%s" stroke-width="1.5" fill="none"/>`, path.String(), colour)
	y := top + 16*float64(i)
	c.add(`<rect x="%d" y="%.0f" width="10" height="10" fill="%s"/>`, left+innerWidth+12, y, colour)
	c.text(left+innerWidth+28, y+10, "start", line.Name)
}

func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

// short prints a number with three digits.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
