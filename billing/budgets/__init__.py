"""Forecasts of bills, budgets that warn, caps that slow LOW work down."""
