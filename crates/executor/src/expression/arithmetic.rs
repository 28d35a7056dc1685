//! Arithmetic with XPath's promotion of types: integer, decimal, float, double; and of dates with
//! durations. Integers and decimals that outgrow 64 bits and `Decimal` go on exactly, up to
//! [`stoa_terms::value::DIGITS_MAX`] digits; more, and division of an exact number by zero, are
//! expression errors.

use oxsdatatypes::{Decimal, Duration};
use stoa_planner::expression::ArithmeticOperator;
use stoa_terms::value::{self, ExactOperator, Temporal, Value};

/// `left operator right`
pub(super) fn calculate(
    operator: ArithmeticOperator,
    left: &Value,
    right: &Value,
) -> Option<Value> {
    match operator {
        ArithmeticOperator::Add => add(left, right),
        ArithmeticOperator::Subtract => subtract(left, right),
        ArithmeticOperator::Multiply => {
            numeric(left, right, multiply_exact, |a, b| a * b, |a, b| a * b)
        }
        ArithmeticOperator::Divide => divide(left, right),
    }
}

/// `left + right`
pub(crate) fn add(left: &Value, right: &Value) -> Option<Value> {
    let sum = numeric(left, right, add_exact, |a, b| a + b, |a, b| a + b);
    if sum.is_some() || left.is_numeric() {
        return sum;
    }
    match (left, right) {
        (Value::Temporal(time), duration) | (duration, Value::Temporal(time)) => {
            shift(time, as_duration(duration)?)
        }
        _ => of_durations(left, right, |a, b| a.checked_add(b)),
    }
}

/// `left / right`
pub(crate) fn divide(left: &Value, right: &Value) -> Option<Value> {
    numeric(left, right, divide_exact, |a, b| a / b, |a, b| a / b)
}

fn subtract(left: &Value, right: &Value) -> Option<Value> {
    let difference = numeric(left, right, subtract_exact, |a, b| a - b, |a, b| a - b);
    if difference.is_some() || left.is_numeric() {
        return difference;
    }
    match (left, right) {
        (Value::Temporal(Temporal::DateTime(a)), Value::Temporal(Temporal::DateTime(b))) => {
            a.checked_sub(*b).map(Value::DayTimeDuration)
        }
        (Value::Temporal(Temporal::Date(a)), Value::Temporal(Temporal::Date(b))) => {
            a.checked_sub(*b).map(Value::DayTimeDuration)
        }
        (Value::Temporal(Temporal::Time(a)), Value::Temporal(Temporal::Time(b))) => {
            a.checked_sub(*b).map(Value::DayTimeDuration)
        }
        (Value::Temporal(time), duration) => shift(time, as_duration(duration)?.checked_neg()?),
        _ => of_durations(left, right, |a, b| a.checked_sub(b)),
    }
}

/// `-value`
pub(super) fn negate(value: &Value) -> Option<Value> {
    match value {
        Value::Integer(_) | Value::Decimal(_) | Value::Big(_) => {
            subtract_exact(&Value::Integer(0), value)
        }
        Value::Float(value) => Some(Value::Float(-value)),
        Value::Double(value) => Some(Value::Double(-value)),
        Value::YearMonthDuration(value) => value.checked_neg().map(Value::YearMonthDuration),
        Value::DayTimeDuration(value) => value.checked_neg().map(Value::DayTimeDuration),
        Value::Duration(value) => value.checked_neg().map(Value::Duration),
        _ => None,
    }
}

/// Calculates with numbers of the type that both are promoted to.
fn numeric(
    left: &Value,
    right: &Value,
    exact: fn(&Value, &Value) -> Option<Value>,
    float: fn(f32, f32) -> f32,
    double: fn(f64, f64) -> f64,
) -> Option<Value> {
    match (left, right) {
        (
            Value::Integer(_) | Value::Decimal(_) | Value::Big(_),
            Value::Integer(_) | Value::Decimal(_) | Value::Big(_),
        ) => exact(left, right),
        (Value::Double(_), _) | (_, Value::Double(_)) => {
            Some(Value::Double(double(left.to_f64()?, right.to_f64()?)))
        }
        (Value::Float(_), _) | (_, Value::Float(_)) => {
            Some(Value::Float(float(left.to_f32()?, right.to_f32()?)))
        }
        _ => None,
    }
}

fn add_exact(left: &Value, right: &Value) -> Option<Value> {
    let sum = match (left, right) {
        (Value::Integer(a), Value::Integer(b)) => a.checked_add(*b).map(Value::Integer),
        _ => decimals(left, right, |a, b| a.checked_add(b)),
    };
    sum.or_else(|| value::calculate(ExactOperator::Add, left, right))
}

fn subtract_exact(left: &Value, right: &Value) -> Option<Value> {
    let difference = match (left, right) {
        (Value::Integer(a), Value::Integer(b)) => a.checked_sub(*b).map(Value::Integer),
        _ => decimals(left, right, |a, b| a.checked_sub(b)),
    };
    difference.or_else(|| value::calculate(ExactOperator::Subtract, left, right))
}

fn multiply_exact(left: &Value, right: &Value) -> Option<Value> {
    let product = match (left, right) {
        (Value::Integer(a), Value::Integer(b)) => a.checked_mul(*b).map(Value::Integer),
        // `None` also where a product has more digits than a `Decimal`.
        _ => decimals(left, right, |a, b| a.checked_mul(b)),
    };
    product.or_else(|| value::calculate(ExactOperator::Multiply, left, right))
}

/// The quotient of two integers is a decimal.
fn divide_exact(left: &Value, right: &Value) -> Option<Value> {
    decimals(left, right, |a, b| a.checked_div(b))
        .or_else(|| value::calculate(ExactOperator::Divide, left, right))
}

/// The result for two numbers that fit into decimals, if it fits, too.
fn decimals(
    left: &Value,
    right: &Value,
    operation: fn(Decimal, Decimal) -> Option<Decimal>,
) -> Option<Value> {
    operation(left.to_decimal()?, right.to_decimal()?).map(Value::Decimal)
}

fn as_duration(value: &Value) -> Option<Duration> {
    match value {
        Value::Duration(value) => Some(*value),
        Value::YearMonthDuration(value) => Some((*value).into()),
        Value::DayTimeDuration(value) => Some((*value).into()),
        _ => None,
    }
}

fn shift(time: &Temporal, by: Duration) -> Option<Value> {
    Some(Value::Temporal(match time {
        Temporal::DateTime(time) => Temporal::DateTime(time.checked_add_duration(by)?),
        Temporal::Date(time) => Temporal::Date(time.checked_add_duration(by)?),
        Temporal::Time(time) => Temporal::Time(time.checked_add_duration(by)?),
        _ => return None,
    }))
}

/// Sums and differences keep the type of two durations of one kind.
fn of_durations(
    left: &Value,
    right: &Value,
    operation: fn(Duration, Duration) -> Option<Duration>,
) -> Option<Value> {
    let result = operation(as_duration(left)?, as_duration(right)?)?;
    Some(match (left, right) {
        (Value::YearMonthDuration(_), Value::YearMonthDuration(_)) => {
            Value::YearMonthDuration(result.try_into().ok()?)
        }
        (Value::DayTimeDuration(_), Value::DayTimeDuration(_)) => {
            Value::DayTimeDuration(result.try_into().ok()?)
        }
        _ => Value::Duration(result),
    })
}
